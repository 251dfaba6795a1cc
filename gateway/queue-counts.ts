/** QueueCounts: how many jobs wait in each queue of the models that batchers are known of. */
import { type BatcherCard, tasksOf } from '../shared/batcher-card.ts';
import type { JobQueue } from './job-queue.ts';

export interface QueueCount {
  model: string;
  kind: 'shared' | 'own' | 'quick';
  /** Whose own queue it is. */
  batcherId: string | undefined;
  waitingCount: number;
}

/** Also of `besides`, a model that may have no batcher left. Throws `dependency_unavailable`. */
export async function queueCounts(
  cards: readonly BatcherCard[],
  queue: Pick<JobQueue, 'waitingCounts'>,
  besides?: string,
): Promise<QueueCount[]> {
  const models = Map.groupBy(cards, card => card.model);
  if (besides !== undefined && !models.has(besides)) models.set(besides, []);
  const queues = [...models].flatMap(([model, some]): Omit<QueueCount, 'waitingCount'>[] => [
    { model, kind: 'shared', batcherId: undefined },
    ...(some.some(card => tasksOf(card).includes('tokenize')) ? [{ model, kind: 'quick' as const, batcherId: undefined }] : []),
    ...some.flatMap(({ batcherId, ownQueueCount }) => (ownQueueCount === undefined ? [] : [{ model, kind: 'own' as const, batcherId }])),
  ]);
  const counts = await queue.waitingCounts(queues.map(({ model, kind, batcherId }) => ({ model, batcherId, isQuick: kind === 'quick' })));
  return queues.map((one, index) => ({ ...one, waitingCount: counts[index] ?? 0 }));
}
