import { atBase, followCell, withCellHeader, type Sent } from "./cells.js";
import { ApiError, ServiceUnavailable } from "./errors.js";

/** The versions of the service that this client was written for. */
export const KNOWN_VERSIONS = /^0\.1\./;

export interface ConnectOptions {
  /** The address of the service, with its path prefix if it has one. In Node, `PLANGATE_URL` is the default. */
  url?: string;
  /**
   * An API key. In Node, `PLANGATE_API_KEY` is the default. Leave it out in a page that has a session cookie of the
   * service.
   */
  key?: string;
  /** The tenant, for an operator's key. */
  tenant?: string;
  /** The person behind the request, for a key with the scope `act-as`. */
  principal?: string;
  /**
   * The addresses of cells by name. If the service answers that the tenant is in one of these cells, requests go there;
   * the key is sent to no other address. In Node, `PLANGATE_CELL_URLS` is the default:
   * `eu1=https://eu1.example.com,eu2=https://eu2.example.com`.
   */
  cellUrls?: Record<string, string>;
  /** Another `fetch`, for example one that adds headers. */
  fetch?: typeof globalThis.fetch;
  /** Where warnings go. The default is `console.warn`. */
  warn?: (message: string) => void;
}

export interface Sending {
  body?: unknown;
  headers?: Record<string, string | undefined>;
  signal?: AbortSignal | undefined;
}

/** Sends requests with the key and headers of one connection. */
export class Connection {
  readonly base: string;
  readonly headers: Record<string, string>;
  readonly credentials: RequestCredentials;
  private readonly cellUrls: Map<string, string>;
  private cellBase: string | undefined;
  private versionChecked = false;

  constructor(private readonly options: ConnectOptions) {
    const url = options.url ?? environment("PLANGATE_URL");
    if (url === undefined) throw new TypeError("connect needs the address of the service: pass url, or set PLANGATE_URL");
    const key = options.key ?? environment("PLANGATE_API_KEY");
    this.base = url.replace(/\/+$/, "");
    this.cellUrls = cellUrlsOf(options);
    this.credentials = key === undefined ? "same-origin" : "omit";
    this.headers = {};
    if (key !== undefined) this.headers["Authorization"] = `Bearer ${key}`;
    else this.headers["Plangate-Request"] = "1"; // required of writes with a session cookie
    if (options.tenant !== undefined) this.headers["Plangate-Tenant"] = options.tenant;
    if (options.principal !== undefined) this.headers["Plangate-Principal"] = options.principal;
  }

  /** `fetch`, which follows the service once if the tenant is in another cell. */
  readonly fetch: typeof globalThis.fetch = (input, init) => {
    const plain = this.options.fetch ?? globalThis.fetch.bind(globalThis);
    const from = this.cellBase ?? this.base;
    const sent: Sent = from === this.base ? [input, init] : atBase(this.base, from, input, init);
    return followCell(plain, sent, (cell, input, init) => {
      if (this.credentials === "same-origin") return withCellHeader(cell, input, init);
      const url = this.cellUrls.get(cell);
      if (url === undefined) return undefined;
      this.cellBase = url;
      return atBase(from, url, input, init);
    });
  };

  warn(message: string): void {
    (this.options.warn ?? console.warn)(`plangate: ${message}`);
  }

  /** Send one request and return its response. Throw an ApiError unless it is a 2xx. */
  async send(method: string, path: string, { body, headers, signal }: Sending = {}): Promise<Response> {
    void this.checkVersion();
    const sent: Record<string, string> = { ...this.headers };
    for (const [name, value] of Object.entries(headers ?? {})) if (value !== undefined) sent[name] = value;
    const init: RequestInit = { method, headers: sent, credentials: this.credentials, redirect: "error" };
    if (signal) init.signal = signal;
    if (body !== undefined) {
      sent["Content-Type"] = "application/json";
      init.body = typeof body === "string" ? body : JSON.stringify(body);
    }
    const response = await this.fetch(this.base + path, init);
    if (!response.ok) throw await ApiError.fromResponse(response);
    return response;
  }

  /** Warn once if the service has a version that this client does not know. */
  private async checkVersion(): Promise<void> {
    if (this.versionChecked) return;
    this.versionChecked = true;
    try {
      const init = { headers: this.headers, credentials: this.credentials };
      const response = await this.fetch(`${this.base}/whoami`, init);
      const version = response.ok ? ((await response.json()) as { version?: unknown }).version : undefined;
      if (typeof version === "string" && !KNOWN_VERSIONS.test(version)) {
        this.warn(`the service has version ${version}, which this client does not know; update the client`);
      }
    } catch {
      this.versionChecked = false; // the service is away: the next request asks again
    }
  }
}

function cellUrlsOf(options: ConnectOptions): Map<string, string> {
  const pairs = (environment("PLANGATE_CELL_URLS") ?? "").split(",").filter((pair) => pair.includes("="));
  const listed = pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)] as const);
  const entries = options.cellUrls === undefined ? listed : Object.entries(options.cellUrls);
  return new Map(entries.map(([name, url]) => [name.trim(), url.trim().replace(/\/+$/, "")]));
}

/** Return a variable of the environment in Node; in a page there is none. */
function environment(name: string): string | undefined {
  return (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name];
}

/** Whether trying again may help: the network failed, or the service is busy or away. */
export function isTransient(error: unknown): boolean {
  if (error instanceof ApiError) return error.isTransient;
  return !(error instanceof DOMException && error.name === "AbortError") && error instanceof Error;
}

/** Wait, unless the signal is aborted first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

/** The pauses between attempts while the service does not answer: longer each time, at most five seconds. */
export class Outage {
  private since: number | undefined;
  private pauseMs = 100;

  constructor(private readonly patienceMs: number) {}

  over(): void {
    this.since = undefined;
    this.pauseMs = 100;
  }

  /** Wait before the next attempt. Throw the error if it is final, or ServiceUnavailable if it took too long. */
  async wait(error: unknown, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) throw signal.reason;
    if (!isTransient(error)) throw error;
    this.since ??= Date.now();
    if (Date.now() - this.since > this.patienceMs) {
      throw new ServiceUnavailable(`the service has not answered for ${Math.round(this.patienceMs / 1000)} s`, {
        cause: error,
      });
    }
    await sleep(this.pauseMs * (0.5 + Math.random() / 2), signal);
    this.pauseMs = Math.min(this.pauseMs * 2, 5000);
  }
}
