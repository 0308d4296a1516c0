// The tenant stream as a tab sees it: its state, its events, and which lists they make stale.
import { QueryClient, type QueryKey } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";

import type { PlangateEvent } from "../../sdk/typescript/src/index.js";
import { ROOT, RequestFailed } from "./api.js";
import { TenantStream, type StreamMessage, type TabMessage } from "./stream.js";

export type Connection =
  | { kind: "connecting" }
  | { kind: "live"; caughtUp: number; back: boolean }
  | { kind: "offline"; since: number; retryAt: number };

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      refetchOnWindowFocus: false,
      retry: (count, error) => count < 2 && (!(error instanceof RequestFailed) || error.status === undefined || error.status >= 502),
    },
  },
});

let connection: Connection = { kind: "connecting" };
const observers = new Set<() => void>();
const eventListeners = new Set<(event: PlangateEvent) => void>();
let post: ((message: TabMessage) => void) | undefined;

function set(next: Connection): void {
  connection = next;
  for (const observe of observers) observe();
}

function receive(message: StreamMessage): void {
  if (message.kind === "event") {
    for (const listener of eventListeners) listener(message.event);
    invalidate(message.event);
  } else if (message.kind === "live") {
    const back = connection.kind === "offline";
    set({ kind: "live", caughtUp: message.caughtUp, back });
    // What happened before the first event of this stream is not in it, so lists are read again.
    if (back) void queries.invalidateQueries();
  } else if (message.kind === "offline") {
    set({ kind: "offline", since: message.since, retryAt: message.retryAt });
  } else {
    set({ kind: "connecting" });
  }
}

const stale = new Map<string, QueryKey>();
let flush: ReturnType<typeof setTimeout> | undefined;

/** Read again what an event changed, at most a few times a second. */
function invalidate(event: PlangateEvent): void {
  const keys: QueryKey[] = [["query", event.queryId]];
  switch (event.type) {
    case "approval-required":
    case "approval-decision":
      keys.push(["approvals"], ["approval", event.data.id]);
      break;
    case "approval-comment":
      keys.push(["approval", event.data.approvalId, "comments"]);
      break;
    case "query-status":
      keys.push(["queries"], ["approvals"]);
      break;
    case "plan-status-change":
    case "action-status-change":
      keys.push(["plans"], ["plan", event.data.planId]);
      break;
    case "artifact-published":
    case "artifact-decision":
      keys.push(["artifacts"]);
      break;
    case "reference-created":
      keys.push(["references"]);
      break;
    case "state-write":
      keys.push(["thread", event.threadId]);
      break;
  }
  for (const key of keys) stale.set(key.join("/"), key);
  flush ??= setTimeout(() => {
    flush = undefined;
    for (const key of stale.values()) void queries.invalidateQueries({ queryKey: key });
    stale.clear();
  }, 250);
}

/** Open the stream, which all tabs share. Call it once there is a session, and again after another one began. */
export function startStream(): void {
  if (post) {
    post({ kind: "restart" });
    return;
  }
  if (typeof SharedWorker === "undefined") {
    const stream = new TenantStream(ROOT.href.replace(/\/$/, ""), receive);
    post = (message) => stream.handle(message);
    stream.start();
    return;
  }
  const worker = new SharedWorker(workerUrl() as string, { type: "module", name: "plangate" });
  worker.port.onmessage = ({ data }: MessageEvent<StreamMessage>) => receive(data);
  worker.port.start();
  post = (message) => worker.port.postMessage(message);
  window.addEventListener("pagehide", () => worker.port.postMessage({ kind: "close" }));
  // A page that comes back from the cache for going back was removed from the stream.
  window.addEventListener("pageshow", (event) => event.persisted && location.reload());
}

export function retryNow(): void {
  post?.({ kind: "retry" });
}

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL: (url: string) => string }): {
    createScriptURL(url: string): unknown;
  };
}

/** Return the address of the worker's script, in the type that the page's Trusted Types policy asks for. */
function workerUrl(): unknown {
  const url = new URL("stream-worker.js", import.meta.url).href;
  const types = (window as { trustedTypes?: TrustedTypes }).trustedTypes;
  return types ? types.createPolicy("plangate", { createScriptURL: requireOwn }).createScriptURL(url) : url;
}

/** Return an address that is the worker's script in the folder of this bundle. Throw TypeError for every other one. */
function requireOwn(url: string): string {
  if (url !== new URL("stream-worker.js", import.meta.url).href || new URL(url).origin !== location.origin) {
    throw new TypeError(`${url} is not the script of the console's worker`);
  }
  return url;
}

export function useConnection(): Connection {
  return useSyncExternalStore(
    (observe) => {
      observers.add(observe);
      return () => observers.delete(observe);
    },
    () => connection,
  );
}

/** Call `listener` for each event of the tenant stream. */
export function onEvent(listener: (event: PlangateEvent) => void): () => void {
  eventListeners.add(listener);
  return () => eventListeners.delete(listener);
}
