/** /admin/batchers: lists the batchers, and asks one to end when it has finished what it runs. */
import type { Context } from 'hono';
import type { BatcherOut, ListOut } from '../../shared/admin-wire.ts';
import type { BatcherCard } from '../../shared/batcher-card.ts';
import { ApiError } from '../../shared/errors.ts';
import { mustBeOperator } from '../administrator.ts';
import type { AppEnv } from '../app-env.ts';
import { anyShard, callBroker } from '../broker-call.ts';
import type { Settings } from '../env.ts';
import { batcherOut } from './admin-wire-out.ts';

const MAX_BATCHERS = 1_000;
const ID = /^[\x21-\x7e]{1,256}$/;

export function listBatchers(settings: Settings) {
  return async function list(c: Context<AppEnv>): Promise<Response> {
    mustBeOperator(c);
    const reply = await callBroker(c, anyShard(settings), { path: '/batchers' });
    if (!reply.ok) return reply;
    const cards: BatcherCard[] = await reply.json();
    const now = Date.now();
    const sorted = cards.sort((a, b) => (a.batcherId < b.batcherId ? -1 : 1));
    const out: ListOut<BatcherOut> = {
      object: 'list',
      data: sorted.slice(0, MAX_BATCHERS).map(card => batcherOut(card, now)),
      has_more: sorted.length > MAX_BATCHERS,
    };
    return c.json(out);
  };
}

/** 202: the batcher sees it with its next heartbeat. */
export function drainBatcher(settings: Settings) {
  return async function drain(c: Context<AppEnv>): Promise<Response> {
    mustBeOperator(c);
    const id = c.req.param('id') ?? '';
    if (!ID.test(id)) throw new ApiError('not_found', 'There is no such batcher.');
    const reply = await callBroker(c, anyShard(settings), { path: '/drain', body: { batcherId: id } });
    if (!reply.ok) return reply;
    const card: BatcherCard = await reply.json();
    return c.json({ ...batcherOut(card, Date.now()), state: 'draining' }, 202);
  };
}
