/**
 * Outbox: where events leave the batcher. Two pipelines a step: each job's own record, fenced against earlier attempts, and then one entry
 * a broker shard. Events of a job leave in order; a broken connection delays them and loses none.
 */
import type { ChainableCommander } from 'ioredis';
import {
  cancelKey,
  fenceKey,
  GENERATION_ACTIVE_LIFETIME_MS,
  GENERATION_LIFETIME_MS,
  generationKey,
  OUT_ENTRY_BYTES,
  OUT_LIFETIME_MS,
  OUT_STREAM_LENGTH,
  outKey,
} from '../shared/keys.ts';
import { decodeEvents, encodeEvent, isBulky, isTerminal, joinedEvents, type TokenEvent } from '../shared/token-event.ts';
import type { RedisClient } from './redis.ts';

/** A job as the outbox sees it. */
export interface Recipient {
  jobId: string;
  attempt: number;
  shard: string;
  /** How long its record stays after its end; as long as that of an answer when absent. */
  lifetimeMs?: number;
}

export interface Dispatch {
  recipient: Recipient;
  /** May be empty: then only the job's standing is asked. */
  events: readonly TokenEvent[];
}

/**
 * ok: go on. cancelled: the client has left. fenced: a later attempt owns the job. behind: Redis has lost the end of its record. broken: its record is
 * something else, and cannot be written.
 */
export type Standing = 'ok' | 'cancelled' | 'fenced' | 'behind' | 'broken';

/** Of a running job's record and fence, whose lifetime is many times this. */
const REFRESH_INTERVAL_MS = GENERATION_ACTIVE_LIFETIME_MS / 12;

/** Events as they are sent, each encoded once. */
interface EncodedDispatch extends Dispatch {
  encoded: readonly string[];
}

export class Outbox {
  readonly #redis: RedisClient;
  /** When the record's lifetime was last begun anew, by performance.now(). */
  readonly #refreshedAt = new WeakMap<Recipient, number>();

  constructor(redis: RedisClient) {
    this.#redis = redis;
  }

  /** What is recorded of a job, this attempt owning it from now on. */
  async claim(recipient: Recipient): Promise<{ standing: Standing; events: TokenEvent[] }> {
    const { jobId, attempt } = recipient;
    const [standing, ...entries] = await this.#redis.claimRecord(...keysOf(jobId), attempt, GENERATION_ACTIVE_LIFETIME_MS);
    return { standing: standing as Standing, events: entries.flatMap(entry => decodeEvents(`[${entry}]`)) };
  }

  /**
   * One step's events. Resolves with each job's standing, in the order of `dispatches`. Brokers hear only of what is recorded: an attempt
   * that has been fenced off without knowing it would otherwise speak once more between two events of the next.
   */
  async send(dispatches: readonly Dispatch[]): Promise<Standing[]> {
    if (dispatches.length === 0) return [];
    const encoded = dispatches.map(dispatch => ({ ...dispatch, encoded: dispatch.events.map(encodeEvent) }));
    const standings = await this.#record(encoded);
    const heard = encoded.flatMap((dispatch, index) => {
      const standing = standings[index];
      if (standing === 'fenced' || standing === 'behind') return [];
      return [standing === 'broken' ? withoutRecord(dispatch) : dispatch];
    });
    await this.#tell(Map.groupBy(heard, ({ recipient }) => recipient.shard));
    return standings;
  }

  async #record(dispatches: readonly EncodedDispatch[]): Promise<Standing[]> {
    const pipeline = this.#redis.pipeline();
    for (const { recipient, events, encoded } of dispatches) {
      const isEnd = events.some(isTerminal);
      const lifetimeMs = isEnd ? (recipient.lifetimeMs ?? GENERATION_LIFETIME_MS) : GENERATION_ACTIVE_LIFETIME_MS;
      const isRefreshed = isEnd || (events.length > 0 && this.#isRefreshDue(recipient));
      const entries = events.flatMap((event, index) => [event.seq, encoded[index]!]);
      pipeline.appendEvents(...keysOf(recipient.jobId), recipient.attempt, lifetimeMs, isRefreshed ? 1 : 0, ...entries);
    }
    const records = await answers(pipeline, error => {
      // One job's trouble must not hold up all others, which are sent together with it.
      if (error.message.includes(OTHER_TYPE)) return 'broken';
      throw error;
    });
    return records as Standing[];
  }

  /** It takes Redis two commands more, so it is not done with every event. */
  #isRefreshDue(recipient: Recipient): boolean {
    const now = performance.now();
    const isDue = now - (this.#refreshedAt.get(recipient) ?? -Infinity) > REFRESH_INTERVAL_MS;
    if (isDue) this.#refreshedAt.set(recipient, now);
    return isDue;
  }

  async #tell(byShard: ReadonlyMap<string, readonly EncodedDispatch[]>): Promise<void> {
    const pipeline = this.#redis.pipeline();
    for (const [shard, dispatches] of byShard) {
      if (dispatches.every(({ events }) => events.length === 0)) continue;
      pipeline.xadd(outKey(shard), 'MAXLEN', '~', OUT_STREAM_LENGTH, '*', 'e', outEntry(dispatches));
      pipeline.pexpire(outKey(shard), OUT_LIFETIME_MS);
    }
    if (pipeline.length > 0) await answers(pipeline);
  }
}

/** The stream keeps thousands of entries; a broker that misses an event reads it from the record. */
function outEntry(dispatches: readonly EncodedDispatch[]): string {
  const entry = joinedEvents(dispatches.flatMap(({ encoded }) => encoded));
  if (entry.length <= OUT_ENTRY_BYTES) return entry;
  return joinedEvents(dispatches.flatMap(({ events, encoded }) => encoded.filter((_, index) => !isBulky(events[index]!))));
}

/** How Redis says that a key holds another type than the command is for. */
const OTHER_TYPE = 'WRONGTYPE';

/** The end of a job whose record cannot be written, for those who listen. */
function withoutRecord({ recipient, events }: Dispatch): EncodedDispatch {
  const { jobId: id, attempt } = recipient;
  const seq = events[0]?.seq ?? 0;
  const end: TokenEvent = { type: 'error', id, attempt, seq, code: 'generation_failed', message: 'The answer could not be recorded.' };
  return { recipient, events: [end], encoded: [encodeEvent(end)] };
}

/** Throws the first failure, unless `onError` has an answer in its place. */
async function answers(pipeline: ChainableCommander, onError?: (error: Error) => unknown): Promise<unknown[]> {
  const { length } = pipeline;
  const results = (await pipeline.exec()) ?? [];
  return Array.from({ length }, (_, index) => {
    const [error, answer] = results[index] ?? [new Error('the pipeline was cut short')];
    if (!error) return answer;
    if (onError === undefined) throw error;
    return onError(error);
  });
}

function keysOf(jobId: string): [string, string, string] {
  return [generationKey(jobId), fenceKey(jobId), cancelKey(jobId)];
}
