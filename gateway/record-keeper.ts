/**
 * RecordKeeper: what Redis knows of the edge's side of each job: its reply record, whether a client is there for it, which jobs a shard has
 * open, and which job answers an idempotency key. A record is found by its tenant only, and everything here ends by itself.
 */
import {
  GENERATION_ACTIVE_LIFETIME_MS,
  GENERATION_LIFETIME_MS,
  generationKey,
  idempotencyKey,
  listenerKey,
  OPEN_JOBS_LIFETIME_MS,
  openJobsKey,
  replyKey,
} from '../shared/keys.ts';
import { decodeEvents, type TokenEvent } from '../shared/token-event.ts';
import type { RedisLink } from './redis.ts';
import type { Pipeline } from './redis-driver.js';
import { parseRecord, type ReplyRecord } from './reply-record.ts';

export interface RecordKeeperOptions {
  link: RedisLink;
  /** This life of this broker. */
  brokerId: string;
  /** How long a client counts as there after it was last announced. */
  graceMs: number;
}

/** Who holds an idempotency key. */
export interface Claim {
  /** Of the job that answers it. */
  id: string;
  shard: string;
  /** Of the request's body. */
  bodyDigest: string;
}

/** Longer than any pause between two announcements. */
const RECORD_LIFETIME_MS = GENERATION_ACTIVE_LIFETIME_MS;

/**
 * Frees an idempotency key, unless another job has it by now.
 * KEYS[1] the key   ARGV[1] job id
 */
const RELEASE_CLAIM = `
local claim = redis.call('GET', KEYS[1])
if claim and cjson.decode(claim).id == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
`;

export class RecordKeeper {
  readonly #options: RecordKeeperOptions;
  /** Ended, and Redis is still to be told. */
  readonly #ended = new Map<string, { record: ReplyRecord; isAnswered: boolean }>();

  constructor(options: RecordKeeperOptions) {
    this.#options = options;
  }

  /** Before the job is on the queue. */
  async put(record: ReplyRecord): Promise<void> {
    const { id, tenant, shard } = record;
    await this.#send(pipeline =>
      pipeline
        .set(replyKey(id, tenant), JSON.stringify(record), 'PX', RECORD_LIFETIME_MS)
        .hset(openJobsKey(shard), id, tenant)
        .pexpire(openJobsKey(shard), OPEN_JOBS_LIFETIME_MS)
        .set(listenerKey(id), this.#options.brokerId, 'PX', this.#options.graceMs),
    );
  }

  /** Undefined for a job that there is not, or not any more, or of another tenant: all three take the same look-up. */
  async find(id: string, tenant: string): Promise<ReplyRecord | undefined> {
    const json = await this.#options.link.run(client => client.get(replyKey(id, tenant)));
    return json === null ? undefined : parseRecord(json);
  }

  /** From the event of sequence number `from` on. */
  async events(id: string, from: number): Promise<TokenEvent[]> {
    // The id of an entry is its sequence number plus one.
    const entries = await this.#options.link.run(client => client.xrange(generationKey(id), `${from + 1}-0`, '+'));
    return eventsOf(entries);
  }

  /** Of many jobs at once, each from its own `from` on. */
  async eventsOfAll(asks: readonly { id: string; from: number }[]): Promise<TokenEvent[][]> {
    const results = await this.#send(pipeline => {
      for (const { id, from } of asks) pipeline.xrange(generationKey(id), `${from + 1}-0`, '+');
      return pipeline;
    });
    return results.map(entries => eventsOf(entries as [string, string[]][]));
  }

  /** Records of the jobs that brokers of the shard have left open. */
  async openRecords(shard: string): Promise<ReplyRecord[]> {
    const open = Object.entries(await this.#options.link.run(client => client.hgetall(openJobsKey(shard))));
    if (open.length === 0) return [];
    const found = await this.#send(pipeline => {
      for (const [id, tenant] of open) pipeline.get(replyKey(id, tenant));
      return pipeline;
    });
    const records = found.map(json => (typeof json === 'string' ? parseRecord(json) : undefined));
    const gone = open.filter((_, index) => records[index] === undefined);
    if (gone.length > 0) {
      await this.#send(pipeline => {
        for (const [id] of gone) pipeline.hdel(openJobsKey(shard), id);
        return pipeline;
      });
    }
    return records.filter(record => record !== undefined);
  }

  /** There are clients for these jobs. Nothing of them runs out before the next announcement. */
  async announce(records: readonly ReplyRecord[]): Promise<void> {
    await this.#send(pipeline => {
      for (const { id, tenant, idempotency } of records) {
        pipeline.set(listenerKey(id), this.#options.brokerId, 'PX', this.#options.graceMs);
        pipeline.pexpire(replyKey(id, tenant), RECORD_LIFETIME_MS);
        if (idempotency !== undefined) pipeline.pexpire(idempotencyKey(idempotency), RECORD_LIFETIME_MS);
      }
      return pipeline;
    });
  }

  /** Whether another broker has a client for the job. */
  async isHeardElsewhere(id: string): Promise<boolean> {
    const brokerId = await this.#options.link.run(client => client.get(listenerKey(id)));
    return brokerId !== null && brokerId !== this.#options.brokerId;
  }

  /** Who holds the idempotency key; the caller itself when nobody did. */
  async claim(digest: string, own: Claim): Promise<Claim> {
    const key = idempotencyKey(digest);
    const json = JSON.stringify(own);
    for (;;) {
      if ((await this.#options.link.run(client => client.set(key, json, 'PX', RECORD_LIFETIME_MS, 'NX'))) !== null) return own;
      const held = await this.#options.link.run(client => client.get(key));
      // It ran out in between.
      if (held !== null) return JSON.parse(held) as Claim;
    }
  }

  /** Who holds it, when anybody does. */
  async claimed(digest: string): Promise<Claim | undefined> {
    const held = await this.#options.link.run(client => client.get(idempotencyKey(digest)));
    return held === null ? undefined : (JSON.parse(held) as Claim);
  }

  /** Told to Redis by the next flush. After an answer it can be had for a while; after a failure its idempotency key is free at once. */
  end(record: ReplyRecord, isAnswered: boolean): void {
    this.#ended.set(record.id, { record, isAnswered });
  }

  get owedCount(): number {
    return this.#ended.size;
  }

  /** Never throws: what fails is done by a later one. */
  async flush(): Promise<void> {
    const ended = [...this.#ended.values()];
    if (ended.length === 0 || !this.#options.link.isConnected) return;
    try {
      await this.#send(pipeline => {
        for (const { record, isAnswered } of ended) {
          const { id, tenant, shard, idempotency } = record;
          pipeline.hdel(openJobsKey(shard), id).pexpire(replyKey(id, tenant), GENERATION_LIFETIME_MS).del(listenerKey(id));
          if (idempotency === undefined) continue;
          if (isAnswered) pipeline.pexpire(idempotencyKey(idempotency), GENERATION_LIFETIME_MS);
          else pipeline.eval(RELEASE_CLAIM, 1, idempotencyKey(idempotency), id);
        }
        return pipeline;
      });
      for (const { record } of ended) this.#ended.delete(record.id);
    } catch {
      // Redis is away.
    }
  }

  /** All answers, or the first failure. */
  async #send(fill: (pipeline: Pipeline) => Pipeline): Promise<unknown[]> {
    return this.#options.link.run(async client => {
      const results = await fill(client.pipeline()).exec();
      return (results ?? []).map(([error, answer]) => {
        if (error !== null) throw error;
        return answer;
      });
    });
  }
}

function eventsOf(entries: readonly [string, string[]][]): TokenEvent[] {
  return entries.length === 0 ? [] : decodeEvents(`[${entries.map(([, fields]) => fields[1]).join(',')}]`);
}
