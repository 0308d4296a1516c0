import { EventSourceParserStream } from "eventsource-parser/stream";

import { Outage, type Connection, type Sending } from "./http.js";
import type { Event as PlangateEvent, SubmitQueryData } from "./generated/types.gen.js";

export type { PlangateEvent };

export interface StreamOptions {
  /** Continue after this cursor: that of an event, or the `nextCursor` of a page. */
  after?: string;
  /** Yield only events of these types. The stream still ends with the query. */
  types?: readonly PlangateEvent["type"][];
  signal?: AbortSignal;
  /** How long to wait for a service that does not answer. The default is five minutes. */
  patienceMs?: number;
  /** Parses the JSON of an event. The default is `JSON.parse`, which rounds 9007199254740993 to 9007199254740992. */
  parse?: (json: string) => PlangateEvent;
}

function parseEvent(json: string): PlangateEvent {
  return JSON.parse(json) as PlangateEvent;
}

interface Message {
  id: string | undefined;
  event: PlangateEvent;
}

const TERMINAL = new Set<string>(["finish", "error"]);

/**
 * The events of a query: an async iterable of typed events, which narrow on `type`.
 *
 * Lost connections are opened again after the last event that was received, so no event is lost or repeated.
 */
export class QueryStream implements AsyncIterable<PlangateEvent> {
  /** The query, once the service has accepted it. */
  queryId: string | undefined;
  /** The cursor of the last event: pass it as `after` to continue later. */
  cursor: string | undefined;

  constructor(
    private readonly connection: Connection,
    private readonly start: { queryId: string } | { body: SubmitQueryData["body"]; idempotencyKey: string },
    private readonly options: StreamOptions = {},
  ) {
    if ("queryId" in start) this.queryId = start.queryId;
    this.cursor = options.after;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<PlangateEvent, void, undefined> {
    const { signal, types, patienceMs = 300_000 } = this.options;
    const outage = new Outage(patienceMs);
    let last = 0;
    for (;;) {
      try {
        for await (const { id, event } of this.messages()) {
          outage.over();
          if (event.seq <= last) continue; // the same event again, on a stream that was started twice
          if (last > 0 && !types && event.seq !== last + 1) throw new TypeError(`event ${last + 1} is missing`);
          last = event.seq;
          this.cursor = id ?? this.cursor;
          this.queryId ??= event.queryId;
          if (!types || types.includes(event.type)) yield event;
          if (TERMINAL.has(event.type)) return;
        }
        if (await this.isOver()) return; // the last event has a type that was not asked for
        await outage.wait(new TypeError("the stream ended before the query did"), signal);
      } catch (error) {
        await outage.wait(error, signal);
      }
    }
  }

  private async *messages(): AsyncGenerator<Message, void, undefined> {
    const { signal, parse } = this.options;
    if (this.queryId !== undefined || !("body" in this.start)) {
      const types = this.options.types ? `?types=${this.options.types.join(",")}` : "";
      const path = `/queries/${encodeURIComponent(this.queryId ?? "")}/stream${types}`;
      yield* receive(this.connection, "GET", path, { headers: { "Last-Event-ID": this.cursor }, signal, parse });
      return;
    }
    const headers = { "Idempotency-Key": this.start.idempotencyKey };
    const accepted = (response: Response) => {
      this.queryId ??= response.headers.get("Location")?.split("/").pop();
    };
    yield* receive(this.connection, "POST", "/queries/stream", { body: this.start.body, headers, signal, parse }, accepted);
  }

  private async isOver(): Promise<boolean> {
    if (!this.options.types || this.queryId === undefined) return false;
    const response = await this.connection.send("GET", `/queries/${encodeURIComponent(this.queryId)}`, {
      signal: this.options.signal,
    });
    const { status } = (await response.json()) as { status: string };
    return status === "succeeded" || status === "failed" || status === "cancelled";
  }
}

export interface TenantStreamOptions extends StreamOptions {
  runtimeId?: string;
  threadId?: string;
  /** Called with the cursor of each event, to continue from there after the program was restarted. */
  onCursor?: (cursor: string) => void;
}

/** Yield the events of all queries of the tenant, from now on or after a cursor. It ends only with its signal. */
export async function* streamTenant(
  connection: Connection,
  options: TenantStreamOptions = {},
): AsyncGenerator<PlangateEvent, void, undefined> {
  const { signal, types, runtimeId, threadId, onCursor, patienceMs = 300_000, parse } = options;
  const outage = new Outage(patienceMs);
  const filter = new URLSearchParams();
  if (types) filter.set("types", types.join(","));
  if (runtimeId !== undefined) filter.set("runtimeId", runtimeId);
  if (threadId !== undefined) filter.set("threadId", threadId);
  const path = `/events/stream${filter.size > 0 ? `?${filter}` : ""}`;
  let cursor = options.after;
  while (!signal?.aborted) {
    try {
      for await (const { id, event } of receive(connection, "GET", path, {
        headers: { "Last-Event-ID": cursor },
        signal,
        parse,
      })) {
        outage.over();
        if (id !== undefined) {
          cursor = id;
          onCursor?.(id);
        }
        yield event;
      }
      await outage.wait(new TypeError("the stream ended"), signal);
    } catch (error) {
      if (signal?.aborted) return;
      await outage.wait(error, signal);
    }
  }
}

/** Yield the messages of one connection. */
export async function* receive(
  connection: Connection,
  method: string,
  path: string,
  { parse = parseEvent, ...sending }: Sending & { parse?: StreamOptions["parse"] | undefined },
  onResponse?: (response: Response) => void,
): AsyncGenerator<Message, void, undefined> {
  const ended = new AbortController();
  const signals = sending.signal ? [sending.signal, ended.signal] : [ended.signal];
  try {
    const response = await connection.send(method, path, {
      ...sending,
      headers: { ...sending.headers, Accept: "text/event-stream" },
      signal: AbortSignal.any(signals),
    });
    onResponse?.(response);
    if (response.body === null) return;
    const messages = response.body
      .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array<ArrayBuffer>>)
      .pipeThrough(new EventSourceParserStream());
    const reader = messages.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield { id: value.id, event: parse(value.data) };
    }
  } finally {
    ended.abort(); // closes the connection of a reader that leaves the loop early
  }
}
