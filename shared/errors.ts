/**
 * Errors: the one table of codes that a client can see, each with its HTTP status and OpenAI type.
 * Three kinds only: the client's fault (4xx), a dependency that fails (503, retryable; 501 where the operator has set up none), our bug (500).
 */
const TABLE = {
  invalid_json: { status: 400, type: 'invalid_request_error' },
  invalid_value: { status: 400, type: 'invalid_request_error' },
  missing_required_parameter: { status: 400, type: 'invalid_request_error' },
  unsupported_parameter: { status: 400, type: 'invalid_request_error' },
  /** Anthropic's: its clients then send the whole conversation each time. */
  thread_unsupported_request: { status: 400, type: 'invalid_request_error' },
  previous_response_not_found: { status: 400, type: 'invalid_request_error' },
  context_length_exceeded: { status: 400, type: 'invalid_request_error' },
  request_exceeds_limit: { status: 400, type: 'invalid_request_error' },
  invalid_api_key: { status: 401, type: 'authentication_error' },
  insufficient_scope: { status: 403, type: 'permission_error' },
  model_not_found: { status: 404, type: 'invalid_request_error' },
  not_found: { status: 404, type: 'invalid_request_error' },
  method_not_allowed: { status: 405, type: 'invalid_request_error' },
  idempotency_conflict: { status: 409, type: 'invalid_request_error' },
  request_cancelled: { status: 499, type: 'invalid_request_error' },
  body_too_large: { status: 413, type: 'invalid_request_error' },
  unsupported_content_encoding: { status: 415, type: 'invalid_request_error' },
  storage_full: { status: 413, type: 'invalid_request_error' },
  rate_limit_exceeded: { status: 429, type: 'rate_limit_error' },
  queue_full: { status: 429, type: 'rate_limit_error' },
  not_configured: { status: 501, type: 'server_error' },
  no_batcher: { status: 503, type: 'service_unavailable' },
  dependency_unavailable: { status: 503, type: 'service_unavailable' },
  generation_failed: { status: 500, type: 'server_error' },
  internal_error: { status: 500, type: 'server_error' },
} as const satisfies Record<string, { status: number; type: string }>;

export type ErrorCode = keyof typeof TABLE;

/** For documentation. */
export const ERROR_CODES = Object.keys(TABLE) as ErrorCode[];

/** The status that a reply with this code has. 499 is nginx's, and no runtime lets it out. */
export function statusOf(code: ErrorCode): number {
  const { status } = TABLE[code];
  return status === 499 ? 400 : status;
}

/** V8's own, which no standard names. */
const stacks = Error as ErrorConstructor & { stackTraceLimit?: number | undefined };

export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly param: string | undefined;
  /** Whole seconds after which a try may succeed; sent as Retry-After. */
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, message: string, detail: { param?: string; retryAfterSeconds?: number; cause?: unknown } = {}) {
    // Where a refusal comes from nobody asks, and under a flood a stack takes as long as the rest of the reply.
    const { stackTraceLimit } = stacks;
    if (TABLE[code].status < 500) stacks.stackTraceLimit = 0;
    super(message, { cause: detail.cause });
    stacks.stackTraceLimit = stackTraceLimit;
    this.name = 'ApiError';
    this.code = code;
    this.param = detail.param;
    this.retryAfterSeconds = detail.retryAfterSeconds;
  }

  get status(): number {
    return TABLE[this.code].status;
  }
}

/** OpenAI's error object: all four keys, always. */
export interface ErrorBody {
  error: { message: string; type: string; param: string | null; code: string };
}

/** Any thrown value as an ApiError; what is not one of ours is our bug and keeps its cause to itself. */
export function toApiError(thrown: unknown): ApiError {
  if (thrown instanceof ApiError) return thrown;
  return new ApiError('internal_error', 'The server had an error while processing the request.', { cause: thrown });
}

/** Control characters, which some messages repeat from a request, do things to the terminal or log where they end. */
const CONTROLS = /(?![\t\n])\p{Cc}/gu;

export function errorBody(error: ApiError): ErrorBody {
  return {
    error: {
      message: error.message.replace(CONTROLS, '\ufffd'),
      type: TABLE[error.code].type,
      param: error.param ?? null,
      code: error.code,
    },
  };
}

/** A code that came over the wire, from a batcher that may be newer than this process. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(TABLE, code);
}
