/**
 * Outbox: where events leave the batcher. One pipeline a step: each job's own record, fenced against earlier attempts, and one entry
 * a broker shard. Events of a job leave in order; a broken connection delays them and loses none.
 */
import type { Redis } from 'ioredis';
import {
  cancelKey,
  fenceKey,
  GENERATION_ACTIVE_LIFETIME_MS,
  GENERATION_LIFETIME_MS,
  generationKey,
  OUT_LIFETIME_MS,
  OUT_STREAM_LENGTH,
  outKey,
} from '../shared/keys.ts';
import { decodeEvents, encodeEvents, isTerminal, type TokenEvent } from '../shared/token-event.ts';

/** A job as the outbox sees it. */
export interface Recipient {
  jobId: string;
  attempt: number;
  shard: string;
}

export interface Dispatch {
  recipient: Recipient;
  /** May be empty: then only the job's standing is asked. */
  events: readonly TokenEvent[];
}

/** ok: go on. cancelled: the client has left. fenced: a later attempt owns the job. */
export type Standing = 'ok' | 'cancelled' | 'fenced';

export class Outbox {
  readonly #redis: Redis;

  constructor(redis: Redis) {
    this.#redis = redis;
  }

  /** What is recorded of a job, this attempt owning it from now on. */
  async claim(recipient: Recipient): Promise<{ standing: Standing; events: TokenEvent[] }> {
    const { jobId, attempt } = recipient;
    const [standing, ...entries] = await this.#redis.claimRecord(...keysOf(jobId), attempt, GENERATION_ACTIVE_LIFETIME_MS);
    return { standing: standing as Standing, events: entries.flatMap(entry => decodeEvents(`[${entry}]`)) };
  }

  /** One step's events. Resolves with each job's standing, in the order of `dispatches`. */
  async send(dispatches: readonly Dispatch[]): Promise<Standing[]> {
    if (dispatches.length === 0) return [];
    const pipeline = this.#redis.pipeline();
    const byShard = new Map<string, TokenEvent[]>();
    for (const { recipient, events } of dispatches) {
      const isOver = events.some(isTerminal);
      const lifetimeMs = isOver ? GENERATION_LIFETIME_MS : GENERATION_ACTIVE_LIFETIME_MS;
      const entries = events.flatMap(event => [event.seq, JSON.stringify(event)]);
      pipeline.appendEvents(...keysOf(recipient.jobId), recipient.attempt, lifetimeMs, ...entries);
      const shardEvents = byShard.get(recipient.shard) ?? [];
      shardEvents.push(...events);
      byShard.set(recipient.shard, shardEvents);
    }
    for (const [shard, events] of byShard) {
      if (events.length === 0) continue;
      pipeline.xadd(outKey(shard), 'MAXLEN', '~', OUT_STREAM_LENGTH, '*', 'e', encodeEvents(events));
      pipeline.pexpire(outKey(shard), OUT_LIFETIME_MS);
    }
    const results = (await pipeline.exec()) ?? [];
    return dispatches.map((_, index) => {
      const [error, standing] = results[index] ?? [new Error('the pipeline was cut short')];
      if (error) throw error;
      return standing as Standing;
    });
  }
}

function keysOf(jobId: string): [string, string, string] {
  return [generationKey(jobId), fenceKey(jobId), cancelKey(jobId)];
}
