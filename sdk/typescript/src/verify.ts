import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";

/** A call that the service POSTs to a tool or dispatcher with the transport `http`. */
export interface SignedCall {
  tool?: string;
  args?: unknown;
  actions?: unknown[];
  context: Record<string, unknown>;
  attempt: number;
  [field: string]: unknown;
}

/** The request was not signed by the service, or too long ago: respond with a 401. */
export class InvalidSignature extends Error {
  override readonly name = "InvalidSignature";
}

const TOLERANCE_S = 5 * 60;

/**
 * Verify the signature of a call, as the Standard Webhooks specification says, and return the parsed call.
 *
 * @param body The bytes or text of the request, exactly as they arrived.
 * @param headers The headers of the request.
 * @param secrets The signing secret of the runtime. During a rotation: the old one and the new one.
 * @throws InvalidSignature if no secret made the signature, or it is more than five minutes old.
 */
export function verifyCall(
  body: Uint8Array | string,
  headers: Headers | Record<string, string | string[] | undefined>,
  secrets: string | readonly string[],
): SignedCall {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const flat = new Map(entries.map(([name, value]) => [name.toLowerCase(), String(value ?? "")]));
  const id = flat.get("webhook-id");
  const sentAt = flat.get("webhook-timestamp");
  const signatures = flat.get("webhook-signature");
  if (!id || !sentAt || !signatures) throw new InvalidSignature("the request has no webhook headers");
  if (!/^\d+$/.test(sentAt) || Math.abs(Date.now() / 1000 - Number(sentAt)) > TOLERANCE_S) {
    throw new InvalidSignature("the signature is more than five minutes old, or from the future");
  }
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const signed = concat(new TextEncoder().encode(`${id}.${sentAt}.`), bytes);
  const given = signatures.split(" ").flatMap((one) => (one.startsWith("v1,") ? [decodeBase64(one.slice(3))] : []));
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    const expected = hmac(sha256, decodeBase64(secret.replace(/^whsec_/, "")), signed);
    if (given.some((one) => equal(one, expected))) {
      return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as SignedCall;
    }
  }
  throw new InvalidSignature("no signing secret made this signature");
}

/** Compare in a time that does not depend on where the bytes differ. */
function equal(left: Uint8Array, right: Uint8Array): boolean {
  if (left.length !== right.length) return false;
  let difference = 0;
  left.forEach((byte, index) => (difference |= byte ^ (right[index] ?? 0)));
  return difference === 0;
}

function concat(first: Uint8Array, second: Uint8Array): Uint8Array {
  const joined = new Uint8Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}

function decodeBase64(text: string): Uint8Array {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    throw new InvalidSignature("a secret or signature is not base64");
  }
}
