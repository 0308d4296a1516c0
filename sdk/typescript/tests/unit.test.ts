import assert from "node:assert/strict";
import { createHash, createHmac, randomBytes } from "node:crypto";
import { test } from "node:test";

import {
  ApiError,
  connect,
  createKey,
  InvalidSignature,
  listQueries,
  parseExact,
  ServiceUnavailable,
  sha256Hex,
  stringifyExact,
  verifyCall,
  whoami,
  type PlangateEvent,
} from "plangate";

const quiet = () => undefined;

/** A service whose responses a test writes. It answers /whoami itself. */
function service(respond: (request: Request, number: number) => Response | Promise<Response>, warn = quiet) {
  const requests: Request[] = [];
  const fetch = async (input: RequestInfo | URL, init?: RequestInit) => {
    const request = new Request(input, init);
    if (request.url.endsWith("/whoami")) return Response.json({ version: "0.1.7" });
    requests.push(request);
    return respond(request, requests.length);
  };
  return { requests, plangate: connect({ url: "http://service.test/", key: "plg_x", fetch, warn }) };
}

function event(seq: number, type: string, fields: object = {}): string {
  const data = { seq, type, queryId: "qry_1", threadId: "thr_1", workId: "wrk_1", parentWorkId: null, agent: "a", at: "t", ...fields };
  return `id: c.${seq}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
}

function stream(...frames: string[]): Response {
  return new Response(frames.join(""), { headers: { "Content-Type": "text/event-stream" } });
}

async function collect(events: AsyncIterable<PlangateEvent>): Promise<PlangateEvent[]> {
  const all: PlangateEvent[] = [];
  for await (const one of events) all.push(one);
  return all;
}

const text = (seq: number) => event(seq, "text", { text: "x", turn: 1 });
const finish = (seq: number) => event(seq, "finish", { finishReason: "stop", usage: {} });

test("in Node, the address and the key come from the environment", async () => {
  process.env["PLANGATE_URL"] = "http://environment.test/below";
  process.env["PLANGATE_API_KEY"] = "plg_environment";
  try {
    const requests: Request[] = [];
    const fetch = async (input: RequestInfo | URL, init?: RequestInit) => {
      const request = new Request(input, init);
      requests.push(request);
      return Response.json({ version: "0.1.0" });
    };
    await whoami({ ...connect({ fetch }).options });
    assert.equal(requests[0]?.url, "http://environment.test/below/whoami");
    assert.equal(requests[0]?.headers.get("Authorization"), "Bearer plg_environment");
  } finally {
    delete process.env["PLANGATE_URL"];
    delete process.env["PLANGATE_API_KEY"];
  }
  assert.throws(() => connect(), /pass url, or set PLANGATE_URL/);
});

/** Two cells: `eu1` refers every request to `cell`, and `eu2` answers. */
function twoCells(cell: string, options: object) {
  const urls: string[] = [];
  const fetch = async (input: RequestInfo | URL, init?: RequestInit) => {
    const request = new Request(input, init);
    if (request.url.endsWith("/whoami")) return Response.json({ version: "0.1.0" });
    urls.push(`${request.method} ${request.url}${request.body ? ` ${await request.text()}` : ""}`);
    if (request.url.startsWith("http://eu2.test/") || request.headers.get("Plangate-Cell") === "eu2") {
      return Response.json({ items: [], nextCursor: null });
    }
    return Response.json({ type: "wrong_cell", title: "t", status: 421, detail: "d", instance: "/", cell }, { status: 421 });
  };
  return { urls, plangate: connect({ url: "http://eu1.test/below", fetch, warn: quiet, ...options }) };
}

test("a key is sent once more, to the cell that the service names, if its address is configured", async () => {
  const cellUrls = { eu2: "http://eu2.test/" };
  const { plangate, urls } = twoCells("eu2", { key: "plg_eu2_x", cellUrls });
  await createKey({ ...plangate.options, body: { principal: "ann", scopes: ["read"] } });
  await listQueries({ ...plangate.options });
  const body = '{"principal":"ann","scopes":["read"]}';
  assert.deepEqual(urls, [
    `POST http://eu1.test/below/keys ${body}`,
    `POST http://eu2.test/keys ${body}`,
    "GET http://eu2.test/queries", // from now on it goes there
  ]);
});

test("a key goes to no cell whose address is not configured", async () => {
  for (const cell of ["eu3", "http://evil.test", "__proto__", "constructor"]) {
    const { plangate, urls } = twoCells(cell, { key: "plg_x", cellUrls: { eu2: "http://eu2.test" } });
    await assert.rejects(collect(plangate.stream("qry_1")), (error) => error instanceof ApiError && error.status === 421);
    assert.deepEqual(urls, ["GET http://eu1.test/below/queries/qry_1/stream"]);
  }
});

test("a page without a key stays at its service, and names the cell in a header", async () => {
  const { plangate, urls } = twoCells("eu2", { cellUrls: { eu2: "http://eu2.test" } });
  await listQueries({ ...plangate.options });
  assert.deepEqual(urls, Array(2).fill("GET http://eu1.test/below/queries"));
});

test("a stream resumes after the last event that it received", async () => {
  const { plangate, requests } = service((_, number) =>
    number === 1 ? stream(": hello\n\n", text(1), text(2), "id: c.3\nda") : stream(text(3), finish(4)),
  );
  const events = await collect(plangate.stream("qry_1"));
  assert.deepEqual(events.map((one) => one.seq), [1, 2, 3, 4]);
  assert.equal(requests[0]?.headers.get("Last-Event-ID"), null);
  assert.equal(requests[1]?.headers.get("Last-Event-ID"), "c.2");
  const first = events[0];
  assert.equal(first?.type === "text" && first.text, "x"); // narrows on `type`
});

test("a query whose first response is lost is started under the same key", async () => {
  const { plangate, requests } = service((_, number) => {
    if (number === 1) throw new TypeError("fetch failed");
    return stream(text(1), finish(2));
  });
  const events = await collect(plangate.startQuery({ runtime: "r", prompt: "p" } as never));
  assert.equal(events.length, 2);
  const keys = requests.map((request) => request.headers.get("Idempotency-Key"));
  assert.ok(keys[0]);
  assert.deepEqual(keys, [keys[0], keys[0]]);
});

test("a stream with a filter ends with its query", async () => {
  const { plangate } = service((request) =>
    request.url.includes("/stream") ? stream(text(1)) : Response.json({ status: "succeeded" }),
  );
  const events = await collect(plangate.stream("qry_1", { types: ["text"] }));
  assert.deepEqual(events.map((one) => one.type), ["text"]);
});

test("a stream parses events as its options say", async () => {
  const { plangate } = service(() => stream(text(1).replace('"x"', "100.00"), finish(2)));
  const texts: string[] = [];
  const parse = (json: string) => {
    texts.push(json);
    return JSON.parse(json) as PlangateEvent;
  };
  await collect(plangate.stream("qry_1", { parse }));
  assert.equal(texts.length, 2);
  assert.match(texts[0] ?? "", /100\.00/);
});

test("an error that trying again cannot change ends the stream", async () => {
  const problem = { type: "not_found", title: "Not found", status: 404, detail: "There is no query 'qry_1'." };
  const { plangate } = service(() => Response.json(problem, { status: 404 }));
  await assert.rejects(collect(plangate.stream("qry_1")), (error) => {
    assert.ok(error instanceof ApiError);
    assert.equal(error.type, "not_found");
    assert.equal(error.message, problem.detail);
    return true;
  });
});

test("a service that stays away is an error after the given patience", async () => {
  const { plangate } = service(() => {
    throw new TypeError("fetch failed");
  });
  await assert.rejects(collect(plangate.stream("qry_1", { patienceMs: 50 })), ServiceUnavailable);
});

test("a signal ends a stream", async () => {
  const stop = new AbortController();
  const { plangate } = service(() => stream(text(1)));
  await assert.rejects(async () => {
    for await (const _ of plangate.stream("qry_1", { signal: stop.signal })) stop.abort();
  }, { name: "AbortError" });
});

const SUBJECT = '{"kind":"tool","args":{"total":100.00,"id":9223372036854775807,"rate":0.1,"__proto__":{"x":1}}}';

test("an approval is of the bytes that were shown, to the last digit", async () => {
  const { plangate, requests } = service((request) =>
    request.method === "GET" ? new Response(SUBJECT) : Response.json({ id: "apr_1", status: "approved" }),
  );
  const subject = await plangate.readSubject("apr_1");
  assert.equal(stringifyExact(subject.value), SUBJECT);
  assert.equal(subject.digest, createHash("sha256").update(SUBJECT).digest("hex"));
  await plangate.approve("apr_1", subject.bytes, { args: parseExact('{"total":100.00,"id":9223372036854775807}') });
  const posted = await requests[1]?.text();
  assert.equal(posted, `{"decision":"approve","digest":"${subject.digest}","args":{"total":100.00,"id":9223372036854775807}}`);
});

test("without Web Crypto the digest is the same", async () => {
  const bytes = randomBytes(100_000);
  const expected = createHash("sha256").update(bytes).digest("hex");
  assert.equal(await sha256Hex(bytes), expected);
  const original = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  Object.defineProperty(globalThis, "crypto", { value: undefined, configurable: true });
  try {
    assert.equal(await sha256Hex(bytes), expected);
  } finally {
    if (original) Object.defineProperty(globalThis, "crypto", original);
  }
});

const SECRET = `whsec_${Buffer.from("0123456789abcdef0123456789abcdef").toString("base64")}`;

function sign(body: string, at = Math.floor(Date.now() / 1000), secret = SECRET): Record<string, string> {
  const key = Buffer.from(secret.slice(6), "base64");
  const signature = createHmac("sha256", key).update(`msg_1.${at}.${body}`).digest("base64");
  return { "Webhook-Id": "msg_1", "webhook-timestamp": String(at), "webhook-signature": `v1a,zzz v1,${signature}` };
}

test("a signed call is verified, also during a rotation", () => {
  const body = '{"tool":"reserve","args":{"count":3},"context":{},"attempt":1}';
  assert.deepEqual(verifyCall(body, sign(body), ["whsec_AAAA", SECRET]).args, { count: 3 });
  assert.deepEqual(verifyCall(Buffer.from(body), new Headers(sign(body)), SECRET).tool, "reserve");
  const rejected: [string, Record<string, string>, string][] = [
    [body.replace("3", "4"), sign(body), SECRET],
    [body, sign(body, Math.floor(Date.now() / 1000) - 301), SECRET],
    [body, sign(body), "whsec_AAAA"],
    [body, {}, SECRET],
    [body, { ...sign(body), "webhook-signature": "v1,%%%" }, SECRET],
  ];
  for (const [sent, headers, secret] of rejected) {
    assert.throws(() => verifyCall(sent, headers, secret), InvalidSignature);
  }
});

test("an unknown version of the service is a warning, once", async () => {
  const warnings: string[] = [];
  const fetch = async (input: RequestInfo | URL) =>
    String(input).endsWith("/whoami") ? Response.json({ version: "9.0.0" }) : new Response("{}");
  const plangate = connect({ url: "http://service.test", fetch, warn: (message) => warnings.push(message) });
  await plangate.readSubject("apr_1");
  await plangate.readSubject("apr_1");
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /9\.0\.0/);
});
