/** GET /health and /ready: this process answers; a request could be served. Neither asks for a key. */
import type { Context } from 'hono';
import type { AppEnv } from '../app-env.ts';
import { anyShard, callBroker } from '../broker-call.ts';
import type { Settings } from '../env.ts';

export function health(c: Context<AppEnv>): Response {
  return c.json({ status: 'ok' });
}

/** 200 when Redis answers and a batcher serves; else 503 with the error that a request would get. */
export function ready(settings: Settings) {
  return (c: Context<AppEnv>): Promise<Response> => callBroker(c, anyShard(settings), { path: '/ready' });
}
