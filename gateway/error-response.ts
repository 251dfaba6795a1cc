/** ErrorResponse: an ApiError as an HTTP reply, in OpenAI's shape; the one place where a thrown value becomes a status. */
import { type ApiError, errorBody, statusOf } from '../shared/errors.ts';

export function errorResponse(error: ApiError): Response {
  const headers = new Headers({ 'content-type': 'application/json' });
  if (error.retryAfterSeconds !== undefined) headers.set('retry-after', String(error.retryAfterSeconds));
  if (error.status === 401) headers.set('www-authenticate', 'Bearer');
  return new Response(JSON.stringify(errorBody(error)), { status: statusOf(error.code), headers });
}
