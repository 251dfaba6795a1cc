/** FleetEntries: what Redis tells of the whole: how many batchers there are, and how many jobs wait for them. */
import { isFresh } from '../../shared/batcher-card.ts';
import type { CardBoard } from '../card-board.ts';
import type { JobQueue } from '../job-queue.ts';
import { queueCounts } from '../queue-counts.ts';
import { type SeriesEntry, seriesKey } from './series.ts';

/** Throws `dependency_unavailable`. */
export async function fleetEntries(board: CardBoard, queue: JobQueue): Promise<SeriesEntry[]> {
  const cards = await board.cards();
  const now = Date.now();
  const batchers = Map.groupBy(cards, card =>
    seriesKey('sluice_gateway_batchers', { model: card.model, state: isFresh(card, now) ? card.state : 'stale' }),
  );
  const counts = await queueCounts(cards, queue);
  return [
    ...[...batchers].map(([key, some]): SeriesEntry => [key, some.length]),
    // The own queues of a model's batchers are added up.
    ...counts.map(
      ({ model, kind, waitingCount }): SeriesEntry => [seriesKey('sluice_gateway_queued_jobs', { model, queue: kind }), waitingCount],
    ),
  ];
}
