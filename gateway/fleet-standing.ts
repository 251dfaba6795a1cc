/** FleetStanding: what Redis tells of the whole, whichever gateway the requests came by: the batchers' cards, and how many jobs wait in which queue. */
import type { BatcherCard } from '../shared/batcher-card.ts';
import type { CardBoard } from './card-board.ts';
import type { JobQueue } from './job-queue.ts';
import { type QueueCount, queueCounts } from './queue-counts.ts';

export interface FleetStanding {
  cards: readonly BatcherCard[];
  queues: readonly QueueCount[];
}

/** Of every model that has a card, and of `model`, which may have none left. Throws `dependency_unavailable`. */
export async function fleetStanding(board: CardBoard, queue: JobQueue, model?: string): Promise<FleetStanding> {
  const cards = await board.cards();
  return { cards, queues: await queueCounts(cards, queue, model) };
}

/** Of jobs that need a row. */
export function queuedCount({ queues }: FleetStanding, model: string): number {
  return queues.reduce((sum, queue) => sum + (queue.model === model && queue.kind !== 'quick' ? queue.waitingCount : 0), 0);
}
