/** GET /admin/queues: how many jobs wait, by model and queue. */
import type { Context } from 'hono';
import type { ListOut, QueueOut } from '../../shared/admin-wire.ts';
import { mustBeOperator } from '../administrator.ts';
import type { AppEnv } from '../app-env.ts';
import { anyShard, callBroker } from '../broker-call.ts';
import type { Settings } from '../env.ts';
import type { QueueCount } from '../queue-counts.ts';

const MAX_QUEUES = 2_000;

export function listQueues(settings: Settings) {
  return async function list(c: Context<AppEnv>): Promise<Response> {
    mustBeOperator(c);
    const reply = await callBroker(c, anyShard(settings), { path: '/queues' });
    if (!reply.ok) return reply;
    const counts: QueueCount[] = await reply.json();
    const data = counts.slice(0, MAX_QUEUES).map(
      ({ model, kind, batcherId, waitingCount }): QueueOut => ({
        object: 'queue',
        model,
        kind,
        batcher_id: batcherId ?? null,
        waiting_count: waitingCount,
      }),
    );
    return c.json({ object: 'list', data, has_more: counts.length > MAX_QUEUES } satisfies ListOut<QueueOut>);
  };
}
