// The connection to the service that served this page. Every call of the console goes through it.
import {
  connect, ApiError, parseExact, stringifyExact, type ExactValue, type Plangate, type Problem,
} from "../../sdk/typescript/src/index.js";
import { followCell, withCellHeader } from "../../sdk/typescript/src/cells.js";
import { createClient, type Client } from "../../sdk/typescript/src/generated/client/index.js";
import { parseAnswer } from "./exact.js";

export { ApiError };

/** The address of the service: the bundle is at `console/assets/`. */
export const ROOT = new URL("../../", import.meta.url);
/** The path of the console without a trailing slash, for links between its pages. */
export const BASE_PATH = new URL("console", ROOT).pathname;

/** How far the clock of the service is ahead of this browser's, in milliseconds. */
let clockOffsetMs = 0;

/** Return the present by the clock of the service. */
export function serverNow(): number {
  return Date.now() + clockOffsetMs;
}

function readClock(response: Response): void {
  const date = Date.parse(response.headers.get("date") ?? "");
  if (Number.isNaN(date)) return;
  // The header has whole seconds: half a second is the expected rest.
  const offset = date + 500 - Date.now();
  if (Math.abs(offset - clockOffsetMs) > 1500) clockOffsetMs = offset;
}

/** A request that failed: what was asked, and what the service or the network said. */
export class RequestFailed extends Error {
  override readonly name = "RequestFailed";

  constructor(
    readonly route: string,
    readonly status: number | undefined,
    readonly problem: Problem | undefined,
    message: string,
  ) {
    super(message);
  }
}

type Listener = () => void;
const signedOut = new Set<Listener>();

/** Call `listener` whenever the service says that this browser has no session. */
export function onSignedOut(listener: Listener): Listener {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

async function observedFetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const method = init?.method ?? (input instanceof Request ? input.method : "GET");
  const url = new URL(input instanceof Request ? input.url : input, ROOT);
  const route = `${method} /${url.pathname.slice(ROOT.pathname.length)}`;
  let response: Response;
  try {
    response = await followCell(fetch, [input, init], withCellHeader);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new RequestFailed(route, undefined, undefined, "the service did not answer");
  }
  readClock(response);
  const unknown = response.status === 401 || response.status === 421; // 421: the cookie is of a cell that is gone
  if (unknown && !route.endsWith(" /session")) for (const listener of signedOut) listener();
  if (!response.ok && response.status !== 304) {
    const failed = await ApiError.fromResponse(response);
    throw new RequestFailed(route, failed.status, failed.problem, failed.message);
  }
  return response;
}

const options = { url: ROOT.href.replace(/\/$/, ""), fetch: observedFetch };

export const plangate: Plangate = connect(options);

const plain: Client = createClient({
  baseUrl: options.url,
  headers: { "Plangate-Request": "1" },
  credentials: "same-origin",
  fetch: observedFetch,
  bodySerializer: (body: unknown) => stringifyExact(body),
});

type Send = (options: Parameters<Client["get"]>[0]) => Promise<object>;

/** Return a method of the client that keeps the digits of numbers in fields that may be any JSON. */
function exactly(send: Send): Client["get"] {
  return (async (options: Parameters<Send>[0]) => {
    const answer = await send({ ...options, parseAs: "text" });
    return "data" in answer ? { ...answer, data: parseAnswer(answer.data as string) } : answer;
  }) as unknown as Client["get"];
}

/** The client of the generated calls. It throws RequestFailed. */
export const client: Client = {
  ...plain,
  get: exactly(plain.get as unknown as Send),
  post: exactly(plain.post as unknown as Send),
  put: exactly(plain.put as unknown as Send),
  delete: exactly(plain.delete as unknown as Send),
};
const generated = { client, throwOnError: true } as const;
/** Pass to a generated call with its own parameters: `call({ path: { query_id } })`. */
export function call<const T extends object>(parameters?: T): T & typeof generated {
  return { ...parameters, ...generated } as T & typeof generated;
}

/** Read JSON in which every number keeps its digits. */
export async function readExact(path: string, signal?: AbortSignal): Promise<ExactValue> {
  const response = await observedFetch(new URL(path.replace(/^\//, ""), ROOT), {
    headers: { Accept: "application/json" },
    credentials: "same-origin",
    signal: signal ?? null,
  });
  return parseExact(await response.text());
}

/** Read the bytes of a file. They are shown from memory, never opened as a page of this origin. */
export async function readBytes(path: string): Promise<{ bytes: Uint8Array<ArrayBuffer>; mediaType: string }> {
  const response = await observedFetch(new URL(path.replace(/^\//, ""), ROOT), { credentials: "same-origin" });
  return {
    bytes: new Uint8Array(await response.arrayBuffer()),
    mediaType: (response.headers.get("content-type") ?? "").split(";")[0] ?? "",
  };
}
