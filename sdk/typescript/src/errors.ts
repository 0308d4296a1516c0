import type { Problem } from "./generated/types.gen.js";

/** The service rejected a request. `problem` is the response (RFC 9457), if it was one. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly status: number,
    readonly problem: Problem | undefined,
    fallback: string,
  ) {
    super(problem?.detail ?? problem?.title ?? fallback);
  }

  /** The stable slug of the error, such as `digest_mismatch`, or undefined if a proxy answered. */
  get type(): string | undefined {
    return this.problem?.type;
  }

  /** Whether the same request may succeed later. */
  get isTransient(): boolean {
    return this.status === 429 || this.status === 502 || this.status === 503 || this.status === 504;
  }

  /** Return the error of a response that is not a 2xx. */
  static async fromResponse(response: Response): Promise<ApiError> {
    const text = await response.text().catch(() => "");
    let problem: Problem | undefined;
    try {
      const value: unknown = JSON.parse(text);
      if (typeof value === "object" && value !== null && "type" in value) problem = value as Problem;
    } catch {
      // A proxy answered, not the service.
    }
    return new ApiError(response.status, problem, `${response.status} ${response.statusText}`.trim());
  }
}

/** The service did not answer for as long as the caller was willing to wait. */
export class ServiceUnavailable extends Error {
  override readonly name = "ServiceUnavailable";
}
