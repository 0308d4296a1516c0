import { sha256Hex } from "./digest.js";
import { parseExact, stringifyExact, type ExactValue } from "./exact.js";
import type { Connection } from "./http.js";
import type { ApprovalInfo } from "./generated/types.gen.js";

/** What an approval is about: show it to the reviewer, then pass its `bytes` to `approve`. */
export interface Subject {
  /** The bytes of the response. Their SHA-256 is the digest. */
  bytes: Uint8Array;
  text: string;
  /** The parsed subject. Every number keeps its digits. */
  value: ExactValue;
  digest: string;
}

export interface Decision {
  feedback?: string;
  /** Another set of arguments for a tool call. Their numbers may be `ExactNumber`s. */
  args?: ExactValue | Record<string, unknown>;
  /** `thread`: do not ask again about the same call in this thread. */
  scope?: "thread";
}

/** Read the subject of an approval. */
export async function readSubject(connection: Connection, id: string): Promise<Subject> {
  const response = await connection.send("GET", `/approvals/${encodeURIComponent(id)}/subject`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  return { bytes, text, value: parseExact(text), digest: await sha256Hex(bytes) };
}

/**
 * Approve the bytes that were shown.
 *
 * The digest is computed from these bytes, never from a value that was parsed and written again, so a decision
 * about anything else is a 409.
 */
export async function approve(
  connection: Connection,
  id: string,
  shown: Uint8Array,
  { feedback, args, scope }: Decision = {},
): Promise<ApprovalInfo> {
  return decide(connection, id, { decision: "approve", digest: await sha256Hex(shown), feedback, args, scope });
}

/** Reject, or send back for revision with feedback. */
export async function decline(
  connection: Connection,
  id: string,
  decision: "reject" | "revise",
  feedback?: string,
): Promise<ApprovalInfo> {
  return decide(connection, id, { decision, feedback });
}

async function decide(connection: Connection, id: string, body: Record<string, unknown>): Promise<ApprovalInfo> {
  const response = await connection.send("POST", `/approvals/${encodeURIComponent(id)}`, {
    body: stringifyExact(body),
  });
  return (await response.json()) as ApprovalInfo;
}
