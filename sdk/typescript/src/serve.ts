import { ApiError } from "./errors.js";
import { parseExact } from "./exact.js";
import { isTransient, Outage, sleep, type Connection } from "./http.js";
import { receive } from "./stream.js";

/** What a handler knows about its call. */
export interface CallContext {
  workId: string;
  /** The model's own id of the call. */
  toolUseId: string;
  queryId: string;
  threadId?: string;
  agent?: string;
  runtimeId?: string;
  resourceId?: string;
  /** Aborted when the claim is lost or the server stops: end without a result. */
  signal: AbortSignal;
  /** Tell the readers of the query how far the call is. */
  progress(label: string, phase?: { phaseIndex?: number; totalPhases?: number; milestone?: boolean | string }): Promise<void>;
  /** Send the readers of the query an event `custom` of a type of your own. */
  emit(eventType: string, data?: unknown): Promise<void>;
}

/** What a dispatcher knows about the actions that it carries out. */
export interface ActionContext extends CallContext {
  idempotencyKey: string;
  planId: string;
  specName: string;
  revision: number;
  digest: string;
  attempt: number;
  inputs: unknown;
  resolvedRefs: Record<string, Record<string, unknown>>;
}

// Handlers state the types of their own arguments; the service has checked them against the tool's schema.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type ToolHandler = (args: any, ctx: CallContext) => unknown;
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type ActionHandler = (actions: any[], ctx: ActionContext) => unknown;

export interface ServeOptions {
  /** Handlers by the name of their tool. */
  tools?: Record<string, ToolHandler>;
  /** One dispatcher for all actions, or one for each kind. */
  actions?: ActionHandler | Record<string, ActionHandler>;
  /** How many calls run at once. The default is 16. */
  concurrency?: number;
  /** How long a claim lasts without a heartbeat. The default is 30 s. */
  leaseMs?: number;
  /** Read arguments and actions with `parseExact`, so that their numbers keep all digits. */
  exact?: boolean;
  signal?: AbortSignal;
}

interface Call {
  workId: string;
  claimToken: string;
  name: string;
  purpose: "tool" | "action" | "predicate";
  queryId: string;
  args?: unknown;
  actions?: unknown[];
  context?: Record<string, string | undefined>;
  [field: string]: unknown;
}

type Handler = (call: Call, ctx: CallContext) => unknown;

/** Serves calls until it is closed. */
export class Server {
  private readonly handlers = new Map<string, Handler>();
  private readonly stop = new AbortController();
  private readonly running = new Set<Promise<void>>();
  private readonly concurrency: number;
  private readonly leaseMs: number;
  private token = newToken();
  private hinted = true;
  private wake: (() => void) | undefined;
  private complained = false;
  /** Settles once the server is closed. */
  readonly closed: Promise<void>;

  constructor(
    private readonly connection: Connection,
    private readonly options: ServeOptions,
  ) {
    this.concurrency = options.concurrency ?? 16;
    this.leaseMs = options.leaseMs ?? 30_000;
    for (const [name, handler] of Object.entries(options.tools ?? {})) {
      this.handlers.set(name, (call, ctx) => handler(call.args, ctx));
    }
    const { actions } = options;
    const dispatchers = typeof actions === "function" ? { actions } : withPrefix(actions ?? {});
    for (const [name, handler] of Object.entries(dispatchers)) {
      this.handlers.set(name, (call, ctx) => handler(call.actions ?? [], actionContext(call, ctx)));
    }
    if (this.handlers.size === 0) throw new TypeError("serve() needs at least one tool or dispatcher");
    options.signal?.addEventListener("abort", () => void this.close(), { once: true });
    this.closed = Promise.all([this.listen(), this.claimOnHints()]).then(() => undefined);
  }

  /** Stop claiming, and wait until the calls that run have answered. */
  async close(): Promise<void> {
    this.stop.abort();
    this.hint();
    await this.closed;
    await Promise.all(this.running);
  }

  private hint(): void {
    this.hinted = true;
    this.wake?.();
  }

  private async listen(): Promise<void> {
    const { signal } = this.stop;
    const outage = new Outage(Number.POSITIVE_INFINITY);
    while (!signal.aborted) {
      try {
        for await (const _ of receive(this.connection, "GET", "/tool-calls/stream", { signal })) {
          outage.over();
          this.hint();
        }
        await outage.wait(new TypeError("the stream ended"), signal);
      } catch (error) {
        if (signal.aborted) return;
        this.complain(error);
        await outage.wait(isTransient(error) ? error : new Error(String(error)), signal).catch(() => undefined);
      }
    }
  }

  private async claimOnHints(): Promise<void> {
    while (!this.stop.signal.aborted) {
      if (!this.hinted || this.running.size >= this.concurrency) {
        await new Promise<void>((resolve) => (this.wake = resolve));
        this.wake = undefined;
        continue;
      }
      this.hinted = false;
      const free = this.concurrency - this.running.size;
      try {
        const calls = await this.claim(free);
        this.complained = false;
        for (const call of calls) this.run(call);
        if (calls.length === free) this.hinted = true;
      } catch (error) {
        if (this.stop.signal.aborted) return;
        this.complain(error);
        setTimeout(() => this.hint(), 1000);
      }
    }
  }

  private complain(error: unknown): void {
    if (!this.complained) this.connection.warn(`calls cannot be claimed at the moment: ${String(error)}`);
    this.complained = true;
  }

  private async claim(max: number): Promise<Call[]> {
    const tools = [...this.handlers.keys()].map((name) => ({ name }));
    // The token stays the same until a response arrived: if it was lost, the service returns the same calls again.
    const body = { tools, max: Math.min(max, 100), leaseMs: this.leaseMs, claimToken: this.token };
    const response = await this.connection.send("POST", "/tool-calls/claim", { body, signal: this.stop.signal });
    const text = await response.text();
    this.token = newToken();
    const parsed = this.options.exact ? parseExact(text) : (JSON.parse(text) as unknown);
    return (parsed as { calls: Call[] }).calls;
  }

  private run(call: Call): void {
    const task: Promise<void> = this.answer(call).then(() => {
      this.running.delete(task);
      this.hint();
    });
    this.running.add(task);
  }

  private async answer(call: Call): Promise<void> {
    const lost = new AbortController();
    const done = new AbortController();
    void this.keepAlive(call, lost, done.signal);
    try {
      const handler = this.handlers.get(call.name);
      if (!handler) return await this.post(call, "release", {});
      let outcome: { output: unknown } | { error: string };
      try {
        outcome = { output: (await handler(call, this.context(call, lost.signal))) ?? null };
      } catch (error) {
        if (lost.signal.aborted) return;
        outcome = { error: messageOf(error) };
      }
      await this.post(call, "result", outcome);
    } catch (error) {
      this.connection.warn(`the result of ${call.name} was not accepted: ${messageOf(error)}`);
    } finally {
      done.abort();
    }
  }

  private async keepAlive(call: Call, lost: AbortController, done: AbortSignal): Promise<void> {
    const body = { claimToken: call.claimToken, leaseMs: this.leaseMs };
    try {
      for (;;) {
        await sleep(this.leaseMs / 3, done);
        try {
          await this.connection.send("POST", callPath(call, "heartbeat"), { body });
        } catch (error) {
          if (!isTransient(error)) return lost.abort(error);
        }
      }
    } catch {
      // The call has been answered.
    }
  }

  private context(call: Call, signal: AbortSignal): CallContext {
    const { toolUseId, threadId, agent, runtimeId, resourceId } = call.context ?? {};
    return {
      workId: call.workId,
      toolUseId: toolUseId ?? call.workId,
      queryId: call.queryId,
      ...(threadId !== undefined && { threadId }),
      ...(agent !== undefined && { agent }),
      ...(runtimeId !== undefined && { runtimeId }),
      ...(resourceId !== undefined && { resourceId }),
      signal,
      progress: async (label, phase = {}) => this.post(call, "progress", { label, ...phase }),
      emit: async (eventType, data = null) => this.post(call, "events", { eventType, data }),
    };
  }

  /** Post until the service answers; while it is away, the heartbeats keep the claim. */
  private async post(call: Call, verb: "result" | "progress" | "events" | "release", body: object): Promise<void> {
    const outage = new Outage(60_000);
    for (;;) {
      try {
        await this.connection.send("POST", callPath(call, verb), { body: { claimToken: call.claimToken, ...body } });
        return;
      } catch (error) {
        const unusable = error instanceof ApiError && (error.status === 413 || error.status === 422);
        if (verb === "result" && unusable && "output" in body) {
          body = { error: `${call.name} ran, but its result cannot be used: ${error.message}`.slice(0, 20_000) };
        } else {
          await outage.wait(error);
        }
      }
    }
  }
}

function withPrefix(handlers: Record<string, ActionHandler>): Record<string, ActionHandler> {
  return Object.fromEntries(Object.entries(handlers).map(([kind, handler]) => [`actions.${kind}`, handler]));
}

function actionContext(call: Call, ctx: CallContext): ActionContext {
  const { idempotencyKey, planId, specName, revision, digest, attempt, inputs, resolvedRefs } = call;
  return { ...ctx, idempotencyKey, planId, specName, revision, digest, attempt, inputs, resolvedRefs } as ActionContext;
}

function callPath(call: Call, verb: string): string {
  return `/tool-calls/${encodeURIComponent(call.workId)}/${verb}`;
}

/** The text of an error for the model: its type and message, never a stack. */
function messageOf(error: unknown): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return text.toWellFormed().replaceAll("\0", "\ufffd").slice(0, 20_000);
}

function newToken(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(24)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
