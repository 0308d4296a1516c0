// The events of one query, read while its page is visible.
import { useEffect, useState } from "react";

import type { PlangateEvent } from "../../../sdk/typescript/src/index.js";
import { plangate } from "../api.js";
import { parseEvent } from "../exact.js";
import { queries } from "../live.js";

export interface QueryEvents {
  events: readonly PlangateEvent[];
  /** Whether the page follows the query: false while it is hidden, or the service is away. */
  following: boolean;
  error: unknown;
}

const BATCH_MS = 80;
const STALE_MS = 500;

/** Stream the events of a query from its first one. The stream closes while the page is hidden, and resumes after the
 * last event. */
export function useQueryEvents(id: string): QueryEvents {
  const [state, setState] = useState<QueryEvents>({ events: [], following: false, error: undefined });
  useEffect(() => {
    const events: PlangateEvent[] = [];
    let cursor: string | undefined;
    let stop: AbortController | undefined;
    let flush: ReturnType<typeof setTimeout> | undefined;
    let refresh: ReturnType<typeof setTimeout> | undefined;
    let over = false;

    const show = (following: boolean, error?: unknown) => {
      clearTimeout(flush);
      flush = undefined;
      setState({ events: [...events], following, error });
    };
    const follow = async () => {
      if (over) return;
      const mine = new AbortController();
      stop = mine;
      try {
        const stream = plangate.stream(id, { signal: mine.signal, patienceMs: 3_600_000, parse: parseEvent, ...(cursor !== undefined && { after: cursor }) });
        for await (const event of stream) {
          if (mine.signal.aborted) return;
          events.push(event);
          cursor = stream.cursor;
          flush ??= setTimeout(() => show(true), BATCH_MS);
          if (/^(work-|query-|action-|plan-|approval-|artifact-|finish|error|data-)/.test(event.type)) {
            refresh ??= setTimeout(() => {
              refresh = undefined;
              void queries.invalidateQueries({ queryKey: ["query", id] });
            }, STALE_MS);
          }
        }
        over = true;
        show(false);
      } catch (error) {
        if (!mine.signal.aborted) show(false, error);
      }
    };
    const visibility = () => {
      if (document.visibilityState === "hidden") {
        stop?.abort();
        show(false);
      } else if (stop?.signal.aborted ?? true) void follow();
    };
    document.addEventListener("visibilitychange", visibility);
    visibility();
    return () => {
      document.removeEventListener("visibilitychange", visibility);
      stop?.abort();
      clearTimeout(flush);
      clearTimeout(refresh);
    };
  }, [id]);
  return state;
}
