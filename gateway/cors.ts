/** Cors: lets browsers call from any origin. Keys travel in a header that pages must set themselves, so no origin needs to be kept out. */
import type { MiddlewareHandler } from 'hono';

const METHODS = 'GET, POST, DELETE, OPTIONS';
const EXPOSED =
  'x-request-id, request-id, traceresponse, retry-after, x-sluice-stream-id, x-sluice-stream-token, x-sluice-idempotent-replay, x-sluice-coalesced, x-sluice-cache, x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, x-ratelimit-reset-tokens';
/** What OpenAI's and Anthropic's clients send besides; used when a preflight names no header. */
const DEFAULT_HEADERS = 'authorization, content-type, x-api-key, anthropic-version, anthropic-beta';
const PREFLIGHT_MAX_AGE_S = '86400';

/** Answers preflights itself, before any key is asked for, and marks every other reply, errors included. */
export function cors(): MiddlewareHandler {
  return async function allowOrigins(c, next) {
    if (c.req.method === 'OPTIONS' && c.req.header('access-control-request-method') !== undefined) {
      return new Response(null, {
        status: 204,
        headers: {
          'access-control-allow-origin': '*',
          'access-control-allow-methods': METHODS,
          'access-control-allow-headers': c.req.header('access-control-request-headers') ?? DEFAULT_HEADERS,
          'access-control-max-age': PREFLIGHT_MAX_AGE_S,
          vary: 'access-control-request-headers',
        },
      });
    }
    await next();
    c.res.headers.set('access-control-allow-origin', '*');
    c.res.headers.set('access-control-expose-headers', EXPOSED);
  };
}
