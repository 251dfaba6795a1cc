/** ErrorResponse: an ApiError as an HTTP reply, in OpenAI's shape; the one place where a thrown value becomes a status. */
import { type ApiError, errorBody, statusOf } from '../shared/errors.ts';

/** Tells the outermost middleware what to log and count; it takes it off again. */
export const ERROR_CODE_HEADER = 'x-sluice-error-code';

export function errorResponse(error: ApiError, more?: Readonly<Record<string, string>>): Response {
  return new Response(errorText(error), { status: statusOf(error.code), headers: errorHeaders(error, more) });
}

export function errorText(error: ApiError): string {
  return JSON.stringify(errorBody(error));
}

export function errorHeaders(error: ApiError, more?: Readonly<Record<string, string>>): Record<string, string> {
  const { code, retryAfterSeconds, status } = error;
  const headers: Record<string, string> = { 'content-type': 'application/json', [ERROR_CODE_HEADER]: code, ...more };
  if (retryAfterSeconds !== undefined) headers['retry-after'] = String(retryAfterSeconds);
  if (status === 401) headers['www-authenticate'] = 'Bearer';
  return headers;
}
