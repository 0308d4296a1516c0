// The one stream of the tenant, which all tabs of a browser share. It runs in a SharedWorker, or in the page where
// a browser has none.
import { connect, ApiError, type PlangateEvent } from "../../sdk/typescript/src/index.js";

/** What the stream tells the tabs. */
export type StreamMessage =
  | { kind: "event"; event: PlangateEvent }
  | { kind: "live"; caughtUp: number }
  | { kind: "offline"; since: number; retryAt: number }
  | { kind: "signed-out" };

/** What a tab tells the stream. */
export type TabMessage = { kind: "restart" } | { kind: "retry" };

/** The types that change what lists show. Text and work are read by the page of their query. */
const TYPES = [
  "query-status",
  "approval-required",
  "approval-decision",
  "approval-comment",
  "plan-status-change",
  "action-status-change",
  "artifact-published",
  "artifact-decision",
  "reference-created",
  "state-write",
] as const satisfies readonly PlangateEvent["type"][];

/** The service sends a comment every 15 s, so a connection that is silent for longer is dead. */
const SILENCE_MS = 45_000;
const CATCH_UP_MS = 1500;

export class TenantStream {
  private stop = new AbortController();
  private connection = new AbortController();
  private state: StreamMessage | undefined;
  private offlineSince: number | undefined;
  private lastByteAt = 0;
  private pauseMs = 500;
  private cursor: string | undefined;
  private wake: (() => void) | undefined;

  constructor(
    private readonly root: string,
    private readonly notify: (message: StreamMessage) => void,
  ) {
    setInterval(() => this.checkSilence(), 5000);
  }

  /** Return what a tab that opens now has to know. */
  get current(): StreamMessage | undefined {
    return this.state;
  }

  handle(message: TabMessage): void {
    if (message.kind === "restart") this.start();
    else this.retry();
  }

  /** Stream from now on, for the session that the browser has now. */
  start(): void {
    this.stop.abort();
    this.stop = new AbortController();
    this.cursor = undefined;
    this.offlineSince = undefined;
    void this.run(this.stop.signal);
  }

  private retry(): void {
    this.wake?.();
  }

  private async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const connection = new AbortController();
      this.connection = connection;
      const client = connect({ url: this.root, fetch: (input, init) => this.open(input, init) });
      try {
        const after = this.cursor === undefined ? {} : { after: this.cursor };
        const events = client.streamTenant({
          ...after,
          types: TYPES,
          signal: AbortSignal.any([signal, connection.signal]),
          patienceMs: -1, // this class waits between attempts, so that tabs learn of the outage
          onCursor: (cursor) => (this.cursor = cursor),
        });
        for await (const event of events) {
          if (signal.aborted) return;
          this.notify({ kind: "event", event });
          if (Date.parse(event.at) < this.reopenedAt && this.caughtUp >= 0) this.caughtUp += 1;
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && (error.status === 401 || error.status === 421)) return this.set({ kind: "signed-out" });
      }
      if (signal.aborted) return;
      await this.pause(signal);
    }
  }

  private reopenedAt = 0;
  private caughtUp = -1;

  /** Open a connection, and note whether the service answers and when it last sent anything. */
  private async open(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
    const response = await fetch(input, init);
    if (!response.ok || response.body === null) return response;
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
    this.lastByteAt = Date.now();
    this.pauseMs = 500;
    if (this.offlineSince === undefined) this.set({ kind: "live", caughtUp: 0 });
    else {
      this.offlineSince = undefined;
      this.reopenedAt = Date.now();
      this.caughtUp = 0;
      setTimeout(() => {
        this.set({ kind: "live", caughtUp: Math.max(this.caughtUp, 0) });
        this.caughtUp = -1;
      }, CATCH_UP_MS);
    }
    const seen = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform: (bytes, controller) => {
        this.lastByteAt = Date.now();
        controller.enqueue(bytes);
      },
    });
    return new Response(response.body.pipeThrough(seen), { status: response.status, headers: response.headers });
  }

  private async pause(signal: AbortSignal): Promise<void> {
    this.offlineSince ??= Date.now();
    const pauseMs = this.pauseMs * (0.75 + Math.random() / 2);
    this.pauseMs = Math.min(this.pauseMs * 2, 15_000);
    this.set({ kind: "offline", since: this.offlineSince, retryAt: Date.now() + pauseMs });
    await new Promise<void>((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, pauseMs);
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  private checkSilence(): void {
    if (this.lastByteAt > 0 && Date.now() - this.lastByteAt > SILENCE_MS) {
      this.lastByteAt = Date.now();
      this.connection.abort();
    }
  }

  private set(message: StreamMessage): void {
    this.state = message;
    this.notify(message);
  }
}
