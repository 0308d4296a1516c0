import * as approvals from "./approvals.js";
import { createClient, type Client } from "./generated/client/index.js";
import type { ApprovalInfo, SubmitQueryData } from "./generated/types.gen.js";
import { Connection, type ConnectOptions } from "./http.js";
import { Server, type ServeOptions } from "./serve.js";
import { QueryStream, streamTenant, type PlangateEvent, type StreamOptions, type TenantStreamOptions } from "./stream.js";

/** A connection to a Plangate service. */
export class Plangate {
  /** The client for the generated calls: `readQuery({ client: plangate.client, path: { query_id } })`. */
  readonly client: Client;
  /** The client, and that a problem is thrown: `readQuery({ ...plangate.options, path: { query_id } })`. */
  readonly options: { readonly client: Client; readonly throwOnError: true };
  private readonly connection: Connection;

  constructor(options: ConnectOptions = {}) {
    const connection = new Connection(options);
    this.connection = connection;
    this.client = createClient({
      baseUrl: connection.base,
      headers: connection.headers,
      credentials: connection.credentials,
      fetch: connection.fetch,
    });
    this.options = { client: this.client, throwOnError: true };
  }

  /** Start a query and stream its events. If the connection is lost early, the query still starts only once. */
  startQuery(body: SubmitQueryData["body"], options: StreamOptions & { idempotencyKey?: string } = {}): QueryStream {
    const idempotencyKey = options.idempotencyKey ?? crypto.getRandomValues(new Uint32Array(5)).join("-");
    return new QueryStream(this.connection, { body, idempotencyKey }, options);
  }

  /** Stream the events of a query, from its first event or after a cursor, to its last. */
  stream(queryId: string, options: StreamOptions = {}): QueryStream {
    return new QueryStream(this.connection, { queryId }, options);
  }

  /** Stream the events of all queries of the tenant, from now on or after a cursor. */
  streamTenant(options: TenantStreamOptions = {}): AsyncGenerator<PlangateEvent, void, undefined> {
    return streamTenant(this.connection, options);
  }

  /** Read the subject of an approval: the bytes to show and approve, and the parsed value with exact numbers. */
  readSubject(approvalId: string): Promise<approvals.Subject> {
    return approvals.readSubject(this.connection, approvalId);
  }

  /** Approve the bytes of the subject that the application showed. */
  approve(approvalId: string, subjectBytes: Uint8Array, options?: approvals.Decision): Promise<ApprovalInfo> {
    return approvals.approve(this.connection, approvalId, subjectBytes, options);
  }

  /** Reject, with an optional reason. */
  reject(approvalId: string, feedback?: string): Promise<ApprovalInfo> {
    return approvals.decline(this.connection, approvalId, "reject", feedback);
  }

  /** Send back for another revision. */
  revise(approvalId: string, feedback: string): Promise<ApprovalInfo> {
    return approvals.decline(this.connection, approvalId, "revise", feedback);
  }

  /** Claim and answer the calls of client tools and dispatchers until the returned server is closed. */
  serve(options: ServeOptions): Server {
    return new Server(this.connection, options);
  }
}

/** Connect to a service. No request is sent yet. */
export function connect(options: ConnectOptions = {}): Plangate {
  return new Plangate(options);
}

export type { Decision, Subject } from "./approvals.js";
export { sha256Hex } from "./digest.js";
export { ApiError, ServiceUnavailable } from "./errors.js";
export { ExactNumber, parseExact, stringifyExact, type ExactValue } from "./exact.js";
export type { ConnectOptions } from "./http.js";
export type { ActionContext, ActionHandler, CallContext, ServeOptions, Server, ToolHandler } from "./serve.js";
export { QueryStream, type PlangateEvent, type StreamOptions, type TenantStreamOptions } from "./stream.js";
export { InvalidSignature, verifyCall, type SignedCall } from "./verify.js";
export * from "./generated/sdk.gen.js";
export type * from "./generated/types.gen.js";
