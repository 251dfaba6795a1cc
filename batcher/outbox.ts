/**
 * Outbox: where events leave the batcher. A step's go by one script: into each job's own record, fenced against earlier attempts, and as one
 * entry to each broker shard; in a cluster, whose servers know nothing of one another, first the records and then the shards. Events of a job leave in order; a broken connection delays them and loses none.
 */
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
    const { isCluster } = this.#redis;
    const standings = isCluster
      ? (await Promise.all(encoded.map(dispatch => this.#record([dispatch], [])))).flat()
      : await this.#record(encoded, [...new Set(encoded.map(({ recipient }) => recipient.shard))]);
    await this.#tell(
      encoded.flatMap((dispatch, index) => {
        const standing = standings[index]!;
        if (standing === 'broken') return [withoutRecord(dispatch)];
        return isCluster && isRecorded(standing) ? [dispatch] : [];
      }),
    );
    return standings;
  }

  /** Records, and tells of it those shards. A script's keys must be on one server: of a cluster, one job's are, and no shard's beside it. */
  #record(dispatches: readonly EncodedDispatch[], shards: readonly string[]): Promise<Standing[]> {
    const keys: string[] = [];
    const jobs: (string | number)[] = [];
    const isBrief = new Map(shards.map(shard => [shard, !fitsEntry(dispatches.filter(({ recipient }) => recipient.shard === shard))]));
    for (const { recipient, events, encoded } of dispatches) {
      const { jobId, attempt, shard } = recipient;
      const isEnd = events.some(isTerminal);
      const lifetimeMs = isEnd ? (recipient.lifetimeMs ?? GENERATION_LIFETIME_MS) : GENERATION_ACTIVE_LIFETIME_MS;
      const isRefreshed = isEnd || (events.length > 0 && this.#isRefreshDue(recipient));
      const isTold = events.map(event => (isBrief.get(shard) && isBulky(event) ? '0' : '1')).join('');
      keys.push(...keysOf(jobId));
      jobs.push(attempt, lifetimeMs, isRefreshed ? 1 : 0, shards.indexOf(shard) + 1, isTold, events[0]?.seq ?? 0, ...encoded);
    }
    keys.push(...shards.map(outKey));
    return this.#redis.recordEvents(keys.length, ...keys, dispatches.length, OUT_LIFETIME_MS, OUT_STREAM_LENGTH, ...jobs) as Promise<
      Standing[]
    >;
  }

  /** It takes Redis two commands more, so it is not done with every event. */
  #isRefreshDue(recipient: Recipient): boolean {
    const now = performance.now();
    const isDue = now - (this.#refreshedAt.get(recipient) ?? -Infinity) > REFRESH_INTERVAL_MS;
    if (isDue) this.#refreshedAt.set(recipient, now);
    return isDue;
  }

  /** Where recording could not. */
  async #tell(dispatches: readonly EncodedDispatch[]): Promise<void> {
    if (dispatches.length === 0) return;
    const pipeline = this.#redis.pipeline();
    for (const [shard, ofShard] of Map.groupBy(dispatches, ({ recipient }) => recipient.shard)) {
      const isBrief = !fitsEntry(ofShard);
      const told = ofShard.flatMap(({ events, encoded }) => encoded.filter((_, index) => !isBrief || !isBulky(events[index]!)));
      if (told.length === 0) continue;
      pipeline.xadd(outKey(shard), 'MAXLEN', '~', OUT_STREAM_LENGTH, '*', 'e', joinedEvents(told));
      pipeline.pexpire(outKey(shard), OUT_LIFETIME_MS);
    }
    for (const [error] of (await pipeline.exec()) ?? [[new Error('the pipeline was cut short')]]) if (error) throw error;
  }
}

function isRecorded(standing: Standing): boolean {
  return standing === 'ok' || standing === 'cancelled';
}

/** Bulky events go into an entry only where it stays small: the stream keeps thousands, and a broker that misses an event reads it from the record. */
function fitsEntry(dispatches: readonly EncodedDispatch[]): boolean {
  let length = 0;
  for (const { encoded } of dispatches) for (const event of encoded) length += event.length + 1;
  return length < OUT_ENTRY_BYTES;
}

/** The end of a job whose record cannot be written, for those who listen. */
function withoutRecord({ recipient, events }: Dispatch): EncodedDispatch {
  const { jobId: id, attempt } = recipient;
  const seq = events[0]?.seq ?? 0;
  const end: TokenEvent = { type: 'error', id, attempt, seq, code: 'generation_failed', message: 'The answer could not be recorded.' };
  return { recipient, events: [end], encoded: [encodeEvent(end)] };
}

function keysOf(jobId: string): [string, string, string] {
  return [generationKey(jobId), fenceKey(jobId), cancelKey(jobId)];
}
