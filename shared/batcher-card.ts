/** BatcherCard: what a batcher says of itself once a second; a card older than CARD_STALE_MS counts for nothing. */
import { z } from 'zod';
import type { TaskKind } from './job.ts';
import { CARD_STALE_MS } from './keys.ts';

/**
 * Script: the clock that cards are dated by. In a cluster each node has its own; it is that of the node that has the cards.
 *
 * KEYS[1]  BATCHER_CARDS
 *
 * Output: { seconds, microseconds of the next }
 */
export const CARD_CLOCK = `return redis.call('TIME')`;

export const BatcherCard = z.looseObject({
  version: z.int(),
  batcherId: z.string(),
  /** Name after the file, in lower case, as clients say it. */
  model: z.string(),
  /** Longest prompt plus answer, in tokens. */
  contextTokens: z.int(),
  /** Kinds of task that it does, TaskKind; more may come. Absent in cards of before there was more than one. */
  tasks: z.array(z.string()).optional(),
  /** Numbers of its embeddings. */
  dimensions: z.int().optional(),
  /** Epoch milliseconds when this card was written, by the clock of Redis. */
  writtenAt: z.number(),
  startedAt: z.number(),
  state: z.enum(['serving', 'draining']),
  runningCount: z.int(),
  waitingCount: z.int(),
  /** Prompt tokens, and those to be computed again, of the waiting. */
  waitingTokens: z.int().optional(),
  /** Jobs in the queue that is meant for this batcher alone; absent where it has none. */
  ownQueueCount: z.int().optional(),
  maxRunningCount: z.int(),
  /** Jobs taken off its queues a second, over about the last minute; absent where it does not count them. */
  requestsPerSecond: z.number().optional(),
  /** KV capacity and use, in tokens. */
  kvCapacityTokens: z.int(),
  kvUsedTokens: z.int(),
  /** Measured, aggregate; 0 until the first measurement. */
  prefillTokensPerSecond: z.number(),
  decodeTokensPerSecond: z.number(),
  /** What was done since the card before: of prompts, of answers, all together; and of one answer. 0 while there was nothing to do. */
  promptTokensPerSecondNow: z.number().optional(),
  generatedTokensPerSecondNow: z.number().optional(),
  requestTokensPerSecondNow: z.number().optional(),
});
export type BatcherCard = z.infer<typeof BatcherCard>;

export const CARD_VERSION = 1;

export function tasksOf(card: Pick<BatcherCard, 'tasks'>): readonly string[] {
  return card.tasks ?? (['generate'] satisfies TaskKind[]);
}

/** Undefined for what is no card; both sides may run other versions, so that is not an error. */
export function parseCard(json: string): BatcherCard | undefined {
  try {
    return BatcherCard.safeParse(JSON.parse(json)).data;
  } catch {
    return undefined;
  }
}

/** One from the future is as good as none: its writer's clock says nothing of how long it has been silent. */
export function isFresh(card: BatcherCard, now: number): boolean {
  return Math.abs(now - card.writtenAt) < CARD_STALE_MS;
}
