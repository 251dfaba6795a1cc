/** ModelLoad: what the batchers of one model have to do, and how fast they do it, together, summed from what their cards say. */
import { type BatcherCard, isFresh } from './batcher-card.ts';

export interface ModelLoad {
  runningCount: number;
  maxRunningCount: number;
  /** Taken off the queue, and not yet running. */
  waitingCount: number;
  /** Their prompt tokens, where all batchers tell them. */
  waitingTokens: number | undefined;
  /** In the queues that are meant for one batcher each. */
  ownQueueCount?: number;
  /** Measured; 0 until then. */
  prefillTokensPerSecond: number;
  decodeTokensPerSecond: number;
}

/** What a card says of one batcher's part. */
export type CardLoad = Pick<
  BatcherCard,
  | 'runningCount'
  | 'maxRunningCount'
  | 'waitingCount'
  | 'waitingTokens'
  | 'ownQueueCount'
  | 'prefillTokensPerSecond'
  | 'decodeTokensPerSecond'
>;

/** Of those of the model's batchers that serve now; the cards may be of all models, and stale. */
export function loadOf(cards: readonly BatcherCard[], model: string, now: number): ModelLoad {
  return sumOf(cards.filter(card => card.model === model && card.state === 'serving' && isFresh(card, now)));
}

export function sumOf(cards: Iterable<CardLoad>): ModelLoad {
  const load: ModelLoad = {
    ...{ runningCount: 0, maxRunningCount: 0, waitingCount: 0, waitingTokens: 0, ownQueueCount: 0 },
    ...{ prefillTokensPerSecond: 0, decodeTokensPerSecond: 0 },
  };
  for (const card of cards) {
    load.runningCount += card.runningCount;
    load.maxRunningCount += card.maxRunningCount;
    load.waitingCount += card.waitingCount;
    load.ownQueueCount = (load.ownQueueCount ?? 0) + (card.ownQueueCount ?? 0);
    const waitingTokens: number | undefined = load.waitingTokens;
    load.waitingTokens = waitingTokens === undefined || card.waitingTokens === undefined ? undefined : waitingTokens + card.waitingTokens;
    load.prefillTokensPerSecond += card.prefillTokensPerSecond;
    load.decodeTokensPerSecond += card.decodeTokensPerSecond;
  }
  return load;
}
