/** FleetEntries: what Redis tells of the whole: how many batchers there are, and how many jobs wait for them. */
import { isFresh } from '../../shared/batcher-card.ts';
import type { CardBoard } from '../card-board.ts';
import type { JobQueue } from '../job-queue.ts';
import { type SeriesEntry, seriesKey } from './series.ts';

/** Throws `dependency_unavailable`. */
export async function fleetEntries(board: CardBoard, queue: JobQueue): Promise<SeriesEntry[]> {
  const cards = await board.cards();
  const now = Date.now();
  const batchers = Map.groupBy(cards, card =>
    seriesKey('sluice_gateway_batchers', { model: card.model, state: isFresh(card, now) ? card.state : 'stale' }),
  );
  const models = new Set(cards.map(card => card.model));
  const queues = [
    ...[...models].map(model => ({ model, batcherId: undefined })),
    ...cards.filter(card => card.ownQueueCount !== undefined).map(({ model, batcherId }) => ({ model, batcherId })),
  ];
  const counts = await queue.waitingCounts(queues);
  return [
    ...[...batchers].map(([key, some]): SeriesEntry => [key, some.length]),
    // The own queues of a model's batchers are added up.
    ...queues.map(
      ({ model, batcherId }, index): SeriesEntry => [
        seriesKey('sluice_gateway_queued_jobs', { model, queue: batcherId === undefined ? 'shared' : 'own' }),
        counts[index] ?? 0,
      ],
    ),
  ];
}
