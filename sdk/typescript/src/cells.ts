type Fetch = typeof globalThis.fetch;
export type Sent = [input: RequestInfo | URL, init?: RequestInit];

/**
 * Send a request. If the service answers that the tenant is in another cell (421), send it once more, as `resend` says.
 * `resend` returns undefined if that cell is not to be asked.
 */
export async function followCell(
  fetch: Fetch,
  [input, init]: Sent,
  resend: (cell: string, input: RequestInfo | URL, init?: RequestInit) => Sent | undefined,
): Promise<Response> {
  const next = await repeatable(input);
  const response = await fetch(next(), init);
  if (response.status !== 421) return response;
  const cell = await cellOf(response);
  const again = cell === undefined ? undefined : resend(cell, next(), init);
  return again === undefined ? response : await fetch(...again);
}

/** Return a function that gives the same request each time. A body can be sent once, and browsers send a clone as a stream. */
async function repeatable(input: RequestInfo | URL): Promise<() => RequestInfo | URL> {
  if (!(input instanceof Request) || input.method === "GET" || input.method === "HEAD") return () => input;
  const body = await input.arrayBuffer();
  return () => (body.byteLength > 0 ? new Request(input, { body }) : new Request(input));
}

/** Name the cell for the balancer in front of the page's own service, before there is a cookie of that cell. */
export function withCellHeader(cell: string, input: RequestInfo | URL, init?: RequestInit): Sent {
  const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
  headers.set("Plangate-Cell", cell);
  return [input, { ...init, headers }];
}

/** Send the same request to the same path below another base address. */
export function atBase(base: string, newBase: string, input: RequestInfo | URL, init?: RequestInit): Sent {
  const from = new URL(`${base}/`).href;
  const url = new URL(input instanceof Request ? input.url : input).href;
  if (!url.startsWith(from)) return [input, init];
  const moved = `${newBase}/${url.slice(from.length)}`;
  return [input instanceof Request ? new Request(moved, input) : moved, init];
}

async function cellOf(response: Response): Promise<string | undefined> {
  try {
    const problem = (await response.clone().json()) as { type?: unknown; cell?: unknown };
    return problem.type === "wrong_cell" && typeof problem.cell === "string" ? problem.cell : undefined;
  } catch {
    return undefined; // a proxy answered, not the service
  }
}
