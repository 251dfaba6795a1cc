/**
 * MessageError: errors as Anthropic's clients know them: their names, their statuses and their object; for every reply under /v1/messages,
 * whatever refused it.
 */
import type { MiddlewareHandler } from 'hono';
import { type ApiError, type ErrorBody, type ErrorCode, errorBody, statusOf } from '../../shared/errors.ts';
import type { AppEnv } from '../app-env.ts';
import { ERROR_CODE_HEADER } from '../error-response.ts';

export interface MessageErrorBody {
  type: 'error';
  error: {
    type: MessageErrorType;
    message: string;
    /** What of it is Sluice's own. */
    details: { error_code: string; param: string | null };
  };
  request_id: string | null;
}

export const MESSAGE_ERROR_TYPES = [
  'invalid_request_error',
  'authentication_error',
  'permission_error',
  'not_found_error',
  'request_too_large',
  'rate_limit_error',
  'api_error',
  'overloaded_error',
] as const;
export type MessageErrorType = (typeof MESSAGE_ERROR_TYPES)[number];

const TYPES: Readonly<Record<number, MessageErrorType>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
};
const OVERLOADED_STATUS = 529;

/** A full queue is no limit of the caller's: that, and whatever is away for now, is what they call overloaded. */
export function messageStatusOf(code: ErrorCode): number {
  const status = statusOf(code);
  return status === 503 || code === 'queue_full' ? OVERLOADED_STATUS : status;
}

export function messageErrorTypeOf(code: ErrorCode): MessageErrorType {
  const status = messageStatusOf(code);
  if (status === OVERLOADED_STATUS) return 'overloaded_error';
  return TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error');
}

/** In the middle of a stream nobody knows the request's id any more. */
export function messageErrorBody(error: ApiError, requestId: string | null = null): MessageErrorBody {
  return translated(errorBody(error), requestId);
}

/** Every error of these calls, wherever it was thrown, in this shape; and the request's id where their clients look for it. */
export function inMessageShape(): MiddlewareHandler<AppEnv> {
  return async function shapeErrors(c, next) {
    await next();
    const requestId = c.get('requestId');
    if (c.res.headers.has(ERROR_CODE_HEADER)) {
      const body = (await c.res.json()) as ErrorBody;
      const headers = new Headers(c.res.headers);
      headers.delete('content-length');
      c.res = undefined;
      c.res = new Response(JSON.stringify(translated(body, requestId)), {
        status: messageStatusOf(body.error.code as ErrorCode),
        headers,
      });
    }
    c.res.headers.set('request-id', requestId);
  };
}

function translated({ error: { code, message, param } }: ErrorBody, requestId: string | null): MessageErrorBody {
  return {
    type: 'error',
    error: { type: messageErrorTypeOf(code as ErrorCode), message, details: { error_code: code, param } },
    request_id: requestId,
  };
}
