/** Counted: every reply in the Worker's counts, which are handed to a broker after it; nothing of it is waited for by a client. */
import type { MiddlewareHandler } from 'hono';
import { matchedRoutes } from 'hono/route';
import type { AppEnv } from '../app-env.ts';
import type { Settings } from '../env.ts';
import { ERROR_CODE_HEADER } from '../error-response.ts';
import { handOverTo } from './hand-over.ts';
import type { RequestCounts } from './request-counts.ts';

export function counted(counts: RequestCounts, settings: Settings): MiddlewareHandler<AppEnv> {
  return async function countRequest(c, next) {
    if (settings.metrics === 'off') return await next();
    const startedAt = Date.now();
    await next();
    const now = Date.now();
    counts.count({
      route: matchedRoutes(c).findLast(({ path }) => !path.includes('*'))?.path,
      method: c.req.method,
      status: c.res.status,
      code: c.res.headers.get(ERROR_CODE_HEADER) ?? undefined,
      headMs: now - startedAt,
    });
    const handedOver = counts.handOverSoon(handOverTo(c, settings), now);
    if (handedOver !== undefined) c.executionCtx.waitUntil(handedOver);
  };
}
