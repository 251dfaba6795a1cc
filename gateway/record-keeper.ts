/**
 * RecordKeeper: what Redis knows of the edge's side of each job: its reply record, whether a client is there for it, which jobs a shard has
 * open, and which job answers an idempotency key. A record is found by its tenant only, and everything here ends by itself.
 */
import { z } from 'zod';
import {
  fenceKey,
  GENERATION_ACTIVE_LIFETIME_MS,
  GENERATION_LIFETIME_MS,
  generationKey,
  idempotencyKey,
  inputKey,
  listenerKey,
  OPEN_JOBS_LIFETIME_MS,
  openJobsKey,
  replyKey,
} from '../shared/keys.ts';
import { decodeEvents, encodeEvent, type TokenEvent } from '../shared/token-event.ts';
import type { RedisLink } from './redis.ts';
import type { Pipeline } from './redis-driver.js';
import { RedisScript } from './redis-script.ts';
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

/** From its job's last announcement: as long as the events of a job that is over, and then some. */
const RECORD_LIFETIME_MS = 2 * GENERATION_LIFETIME_MS;

/**
 * Frees an idempotency key, or gives it to another job, unless a third one has it by now.
 *
 * KEYS[1]  the key
 *
 * ARGV[1]  id of the job that is to have it no more
 * ARGV[2]  the next one's claim; '' for none
 * ARGV[3]  its lifetime in ms
 *
 * Output: 1 when it is done
 */
const PASS_CLAIM = `
local held = redis.call('GET', KEYS[1])
local is_json, claim = pcall(cjson.decode, held)
if not is_json or type(claim) ~= 'table' or claim.id ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  return redis.call('DEL', KEYS[1])
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
`;

/**
 * Puts the end of a record back that Redis has lost.
 *
 * KEYS[1]  record of the job
 * KEYS[2]  fence of the job
 *
 * ARGV[1]   attempt to which the record belongs from now on, unless a later one has it
 * ARGV[2]   lifetime of both in ms, from now
 * ARGV[3]   sequence number of the first event
 * ARGV[4..] the events as JSON, in order
 *
 * Output: 0 when still more is missing
 */
const RESTORE_RECORD = new RedisScript(`
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local held = #last > 0 and tonumber(string.match(last[1][1], '^(%d+)')) or 0
local first = tonumber(ARGV[3])
if first > held then return 0 end
for index = 4, #ARGV do
  local entry = first + index - 3
  if entry > held then redis.call('XADD', KEYS[1], entry .. '-0', 'e', ARGV[index]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], math.max(tonumber(ARGV[1]), tonumber(redis.call('GET', KEYS[2]) or '0')), 'PX', ARGV[2])
return 1
`);

/**
 * KEYS[1]  an idempotency key
 *
 * ARGV[1]  what is held there and cannot be read; anything else stays
 */
const DROP_TEXT = `
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 0
`;

const ClaimShape = z.looseObject({ id: z.string(), shard: z.string(), bodyDigest: z.string() });

/** Undefined for what is no claim. */
function parseClaim(json: string): Claim | undefined {
  try {
    return ClaimShape.safeParse(JSON.parse(json)).data;
  } catch {
    return undefined;
  }
}

export class RecordKeeper {
  readonly #options: RecordKeeperOptions;
  /** Opened, and Redis is still to be told. Most end before, and then it never hears of them. */
  readonly #opened = new Map<string, ReplyRecord>();
  /** Ended, and Redis is still to be told. */
  readonly #ended = new Map<string, { record: ReplyRecord; freed: string | undefined }>();

  constructor(options: RecordKeeperOptions) {
    this.#options = options;
  }

  /** Before the job is on the queue. That it is open is told by the next flush. `input`: what it was asked, where that is kept. */
  async put(record: ReplyRecord, input?: string): Promise<void> {
    const { id, tenant } = record;
    this.#opened.set(id, record);
    const json = JSON.stringify(record);
    if (input === undefined) {
      await this.#options.link.run(client => client.set(replyKey(id, tenant), json, 'PX', RECORD_LIFETIME_MS));
      return;
    }
    await this.#send(pipeline => {
      pipeline.set(replyKey(id, tenant), json, 'PX', RECORD_LIFETIME_MS);
      return pipeline.set(inputKey(id, tenant), input, 'PX', RECORD_LIFETIME_MS);
    });
  }

  /** As it was put; undefined when it was not kept, or is not any more. */
  async input({ id, tenant }: ReplyRecord): Promise<string | undefined> {
    return (await this.#options.link.run(client => client.get(inputKey(id, tenant)))) ?? undefined;
  }

  /** Nothing is left of a job that is over; one that runs goes on under its changed record. */
  async forget(record: ReplyRecord, running: ReplyRecord | undefined): Promise<void> {
    const { id, tenant, idempotency } = record;
    await this.#send(pipeline => {
      pipeline.del(inputKey(id, tenant));
      if (running !== undefined) return pipeline.set(replyKey(id, tenant), JSON.stringify(running), 'PX', RECORD_LIFETIME_MS);
      pipeline.del(replyKey(id, tenant));
      pipeline.del(generationKey(id));
      if (idempotency !== undefined) pipeline.eval(PASS_CLAIM, 1, idempotencyKey(idempotency), id, '');
      return pipeline;
    });
  }

  /** Of a job that came onto no queue: nothing of it is left, its idempotency key is free. Never throws: by itself it goes a while later. */
  async drop(record: ReplyRecord): Promise<void> {
    this.end(record, false);
    await this.forget(record, undefined).catch(() => undefined);
  }

  /** Undefined for a job that there is not, or not any more, or of another tenant: all three take the same look-up. */
  async find(id: string, tenant: string): Promise<ReplyRecord | undefined> {
    const json = await this.#options.link.run(client => client.get(replyKey(id, tenant)));
    return json === null ? undefined : ownRecord(json, id, tenant);
  }

  /** From the event of sequence number `from` on. */
  async events(id: string, from: number): Promise<TokenEvent[]> {
    // The id of an entry is its sequence number plus one.
    const entries = await this.#options.link.run(client => client.xrange(generationKey(id), `${from + 1}-0`, '+'));
    return eventsOf(id, entries);
  }

  /** Of many jobs at once, each from its own `from` on. */
  async eventsOfAll(asks: readonly { id: string; from: number }[]): Promise<TokenEvent[][]> {
    const results = await this.#send(pipeline => {
      for (const { id, from } of asks) pipeline.xrange(generationKey(id), `${from + 1}-0`, '+');
      return pipeline;
    });
    return results.map((entries, index) => eventsOf(asks[index]!.id, entries as [string, string[]][]));
  }

  /** How many events each job's record has; undefined where it is no record. */
  async eventCounts(ids: readonly string[]): Promise<(number | undefined)[]> {
    return await this.#options.link.run(client =>
      Promise.all(
        ids.map(async id => {
          const last = await client.xrevrange(generationKey(id), '+', '-', 'COUNT', 1).catch(otherType);
          // The id of an entry is its sequence number plus one.
          return last && (last.length === 0 ? 0 : Number(last[0]![0].split('-')[0]));
        }),
      ),
    );
  }

  /** Puts back what the record lacks of these events, the first `heldCount` of which it has. False when it lacks still more. */
  async restore(id: string, told: { events: readonly TokenEvent[]; heldCount: number; attempt: number }): Promise<boolean> {
    const missing = told.events.slice(told.heldCount).map(encodeEvent);
    const args = [told.attempt, GENERATION_ACTIVE_LIFETIME_MS, told.heldCount, ...missing];
    return (await this.#options.link.run(client => RESTORE_RECORD.run(client, [generationKey(id), fenceKey(id)], args))) === 1;
  }

  /** Which attempt owns a job's record; 0 for none. */
  async owner(id: string): Promise<number> {
    return Number((await this.#options.link.run(client => client.get(fenceKey(id)))) ?? 0);
  }

  /** Records of the jobs that brokers of the shard have left open. */
  async openRecords(shard: string): Promise<ReplyRecord[]> {
    const open = Object.entries(await this.#options.link.run(client => client.hgetall(openJobsKey(shard))));
    if (open.length === 0) return [];
    const found = await this.#send(pipeline => {
      for (const [id, tenant] of open) pipeline.get(replyKey(id, tenant));
      return pipeline;
    });
    const records = found.map((json, index) => (typeof json === 'string' ? ownRecord(json, ...open[index]!) : undefined));
    const gone = open.filter((_, index) => records[index] === undefined);
    if (gone.length > 0) {
      await this.#send(pipeline => {
        return pipeline.hdel(openJobsKey(shard), ...gone.map(([id]) => id));
      });
    }
    return records.filter(record => record !== undefined);
  }

  /** There are clients for these jobs. Nothing of them runs out before the next announcement. */
  async announce(records: readonly ReplyRecord[]): Promise<void> {
    await this.#send(pipeline => {
      for (const { id, tenant, idempotency, reply } of records) {
        pipeline.set(listenerKey(id), this.#options.brokerId, 'PX', this.#options.graceMs);
        pipeline.pexpire(replyKey(id, tenant), RECORD_LIFETIME_MS);
        if (reply.kind === 'response') pipeline.pexpire(inputKey(id, tenant), RECORD_LIFETIME_MS);
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
      const claim = held === null ? undefined : parseClaim(held);
      if (claim !== undefined) return claim;
      // It ran out in between; or nobody can read it, and so nobody has it.
      if (held !== null) await this.#options.link.run(client => client.eval(DROP_TEXT, 1, key, held));
    }
  }

  /** From a job that never came onto the queue: false when the key has moved on. */
  async takeOver(digest: string, fromId: string, own: Claim): Promise<boolean> {
    const args = [fromId, JSON.stringify(own), RECORD_LIFETIME_MS];
    return (await this.#options.link.run(client => client.eval(PASS_CLAIM, 1, idempotencyKey(digest), ...args))) === 1;
  }

  async release(digest: string, id: string): Promise<void> {
    await this.#options.link.run(client => client.eval(PASS_CLAIM, 1, idempotencyKey(digest), id, ''));
  }

  /** Who holds it, when anybody does. */
  async claimed(digest: string): Promise<Claim | undefined> {
    const held = await this.#options.link.run(client => client.get(idempotencyKey(digest)));
    return held === null ? undefined : parseClaim(held);
  }

  /**
   * Told to Redis by the next flush. The idempotency key of an answer stays as long as the answer, that of a failure is free at once, and
   * so is the one that identical requests shared.
   */
  end(record: ReplyRecord, isAnswered: boolean): void {
    const wasTold = !this.#opened.delete(record.id);
    const { idempotency } = record;
    const freed = isAnswered && record.isCoalesced !== true ? undefined : idempotency;
    if (wasTold || freed !== undefined) this.#ended.set(record.id, { record, freed });
  }

  get owedCount(): number {
    return this.#opened.size + this.#ended.size;
  }

  /** Never throws: what fails is done by a later one. */
  async flush(): Promise<void> {
    const opened = [...this.#opened.values()];
    const ended = [...this.#ended.values()];
    if (opened.length + ended.length === 0 || !this.#options.link.isConnected) return;
    // What ends while this is under way ends after it.
    this.#opened.clear();
    try {
      await this.#send(pipeline => {
        for (const [shard, records] of Map.groupBy(opened, record => record.shard)) {
          pipeline.hset(openJobsKey(shard), ...records.flatMap(({ id, tenant }) => [id, tenant]));
          pipeline.pexpire(openJobsKey(shard), OPEN_JOBS_LIFETIME_MS);
        }
        for (const [shard, ends] of Map.groupBy(ended, ({ record }) => record.shard)) {
          pipeline.hdel(openJobsKey(shard), ...ends.map(({ record }) => record.id));
        }
        for (const { record, freed } of ended) {
          if (freed !== undefined) pipeline.eval(PASS_CLAIM, 1, idempotencyKey(freed), record.id, '');
        }
        return pipeline;
      });
      for (const { record } of ended) this.#ended.delete(record.id);
    } catch {
      // Redis is away.
      for (const record of opened) if (!this.#ended.has(record.id)) this.#opened.set(record.id, record);
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

/** Undefined for one of another job or tenant, wherever it was found. */
function ownRecord(json: string, id: string, tenant: string): ReplyRecord | undefined {
  const record = parseRecord(json);
  return record?.id === id && record.tenant === tenant ? record : undefined;
}

/** Whoever wrote it was none of us. */
function otherType(error: Error): undefined {
  if (!error.message.includes('WRONGTYPE')) throw error;
}

function eventsOf(id: string, entries: readonly [string, string[]][]): TokenEvent[] {
  return entries.flatMap(([entryId, fields]) => {
    try {
      return decodeEvents(`[${fields[1]}]`);
    } catch {
      return [unreadable(id, entryId)];
    }
  });
}

/** What stands where an event cannot be read: nothing that comes after it would be the whole answer, and perhaps nothing comes. */
function unreadable(id: string, entryId: string): TokenEvent {
  const seq = Number(entryId.split('-')[0]) - 1;
  return { type: 'error', id, attempt: 0, seq, code: 'generation_failed', message: 'A part of the answer was lost.' };
}
