/** ErrorResponse: an ApiError as an HTTP reply, in OpenAI's shape; the one place where a thrown value becomes a status. */
import { type ApiError, errorBody } from '../shared/errors.ts';

export function errorResponse(error: ApiError): Response {
  const headers = new Headers({ 'content-type': 'application/json' });
  if (error.retryAfterSeconds !== undefined) headers.set('retry-after', String(error.retryAfterSeconds));
  if (error.status === 401) headers.set('www-authenticate', 'Bearer');
  // 499 is nginx's, and no runtime lets it out.
  return new Response(JSON.stringify(errorBody(error)), { status: error.status === 499 ? 400 : error.status, headers });
}
