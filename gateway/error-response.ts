/** ErrorResponse: an ApiError as an HTTP reply, in OpenAI's shape; the one place where a thrown value becomes a status. */
import { type ApiError, errorBody, statusOf } from '../shared/errors.ts';

/** Tells the outermost middleware what to log and count; it takes it off again. */
export const ERROR_CODE_HEADER = 'x-sluice-error-code';

export function errorResponse(error: ApiError): Response {
  const headers = new Headers({ 'content-type': 'application/json', [ERROR_CODE_HEADER]: error.code });
  if (error.retryAfterSeconds !== undefined) headers.set('retry-after', String(error.retryAfterSeconds));
  if (error.status === 401) headers.set('www-authenticate', 'Bearer');
  return new Response(JSON.stringify(errorBody(error)), { status: statusOf(error.code), headers });
}
