/** JobQueue: what waits on the queues of models, and how it is taken off them again. */
import type { ApiError } from '../shared/errors.ts';
import type { Job } from '../shared/job.ts';
import {
  CANCEL_LIFETIME_MS,
  cancelKey,
  fenceKey,
  GENERATION_LIFETIME_MS,
  generationKey,
  ownQueuesKey,
  queueBeginning,
  queueKey,
  queueNameOf,
  queuePrefix,
} from '../shared/keys.ts';
import { PUT_JOB, QUEUE_EVENT_COUNT } from './queue-entry.ts';
import type { RedisLink } from './redis.ts';
import { Queue } from './redis-driver.js';
import { RedisScript } from './redis-script.ts';

/** Queues of batchers come and go with them. */
const MAX_QUEUES = 256;

/** A job by which it can be found again. */
export interface QueuedJob {
  id: string;
  model: string;
  /** Whose own queue it is in; absent for the queue that the model's batchers share. */
  batcherId?: string | undefined;
  /** It needs no row, and is in the queue of such. */
  isQuick?: boolean | undefined;
}

/** How a job ends that no batcher will end. */
export type Ending = Pick<ApiError, 'code' | 'message'>;

/**
 * Puts a job on its queue that has had its place there before.
 *
 * KEYS[1]  sorted set of those that wait in the queue
 * KEYS[2]  set of the batchers that have a queue of their own
 *
 * ARGV[1]  beginning of the names of the queue's structures
 * ARGV[2]  id of the job
 * ARGV[3]  name of its shard
 * ARGV[4]  the job, in JSON
 * ARGV[5]  its priority
 * ARGV[6]  whose own queue it is; '' for another queue
 */
const PUT_BACK = new RedisScript(`${PUT_JOB}
put_job(ARGV[1], { id = ARGV[2], shard = ARGV[3], data = ARGV[4] }, tonumber(ARGV[5]))
if ARGV[6] ~= '' then redis.call('SADD', KEYS[2], ARGV[6]) end
return 0
`);

/**
 * Ends the record of a job that is off the queue, and fences off whoever might still hold it. One that has ended stays as it is.
 *
 * KEYS[1]  record of the job
 * KEYS[2]  fence of the job
 *
 * ARGV[1]  the error event without attempt, seq and closing brace
 * ARGV[2]  lifetime of both in ms, from now
 */
const CLOSE_RECORD = new RedisScript(`
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local held = 0
if #last > 0 then
  held = tonumber(string.match(last[1][1], '^(%d+)'))
  local kind = cjson.decode(last[1][2][2]).type
  if kind == 'finish' or kind == 'error' then
    return 0
  end
end
local attempt = tonumber(redis.call('GET', KEYS[2]) or '0') + 1
redis.call('XADD', KEYS[1], (held + 1) .. '-0', 'e', ARGV[1] .. ',"attempt":' .. attempt .. ',"seq":' .. held .. '}')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], attempt, 'PX', ARGV[2])
return 1
`);

export class JobQueue {
  readonly #link: RedisLink;
  readonly #queues = new Map<string, Queue>();
  /** Taken back while Redis was away, and still to be. */
  readonly #owed = new Map<string, { job: QueuedJob; ending: Ending }>();

  constructor(link: RedisLink) {
    this.#link = link;
  }

  /** One that is there already stays as it is. Throws `dependency_unavailable`; the job may then be on the queue nevertheless. */
  async putBack(job: Job, place: { batcherId: string | undefined; isQuick: boolean; priority: number }): Promise<void> {
    const { id, shard, model } = job;
    const { batcherId, priority } = place;
    const name = queueNameOf(place);
    const keys = [queueKey(model, name, 'prioritized'), ownQueuesKey(model)];
    const args = [queueBeginning(model, name), id, shard, JSON.stringify(job), priority, batcherId ?? ''];
    await this.#link.run(client => PUT_BACK.run(client, keys, args));
  }

  /** Whether it waits or is worked on. */
  async has(job: QueuedJob): Promise<boolean> {
    return (await this.areThere([job]))[0]!;
  }

  /** The same of many. */
  async areThere(jobs: readonly QueuedJob[]): Promise<boolean[]> {
    const counts = await this.#link.run(client => Promise.all(jobs.map(job => client.exists(this.#queue(job).toKey(job.id)))));
    return counts.map(count => count === 1);
  }

  /**
   * Tells a batcher that has the job to stop, which then ends its record; removes it from the queue when none has, and ends the record
   * here. Never throws: what fails is done later.
   */
  async withdraw(job: QueuedJob, ending: Ending): Promise<void> {
    this.#owed.set(job.id, { job, ending });
    try {
      // The flag first: a batcher that takes the job in between sees it.
      await this.#link.run(client => client.set(cancelKey(job.id), '1', 'PX', CANCEL_LIFETIME_MS));
      if ((await this.#link.run(() => this.#queue(job).remove(job.id))) === 1) await this.#closeRecord(job.id, ending);
      this.#owed.delete(job.id);
    } catch {
      // Redis is away.
    }
  }

  get owedCount(): number {
    return this.#owed.size;
  }

  async withdrawOwed(): Promise<void> {
    for (const { job, ending } of [...this.#owed.values()]) {
      if (!this.#link.isConnected) return;
      await this.withdraw(job, ending);
    }
  }

  async #closeRecord(id: string, { code, message }: Ending): Promise<void> {
    const event = JSON.stringify({ type: 'error', id, code, message }).slice(0, -1);
    await this.#link.run(client => CLOSE_RECORD.run(client, [generationKey(id), fenceKey(id)], [event, GENERATION_LIFETIME_MS]));
  }

  /** How many waiting jobs stand before each in its queue, plus one; undefined for a job that no longer waits. */
  async positions(jobs: readonly QueuedJob[]): Promise<(number | undefined)[]> {
    const results = await this.#link.run(client => {
      const pipeline = client.pipeline();
      for (const job of jobs) pipeline.zrank(this.#queue(job).toKey('prioritized'), job.id);
      return pipeline.exec();
    });
    return jobs.map((_, index) => {
      const rank = results?.[index]?.[1];
      return typeof rank === 'number' ? rank + 1 : undefined;
    });
  }

  /** How many jobs wait in each of these queues. */
  async waitingCounts(queues: readonly Omit<QueuedJob, 'id'>[]): Promise<number[]> {
    const results = await this.#link.run(client => {
      const pipeline = client.pipeline();
      for (const queue of queues) pipeline.zcard(this.#queue(queue).toKey('prioritized'));
      return pipeline.exec();
    });
    return queues.map((_, index) => Number(results?.[index]?.[1] ?? 0));
  }

  #queue(of: Omit<QueuedJob, 'id'>): Queue {
    const key = keyOf(of);
    let queue = this.#queues.get(key);
    if (queue === undefined) {
      queue = new Queue(queueNameOf(of), {
        connection: this.#link.client,
        prefix: queuePrefix(of.model),
        streams: { events: { maxLen: QUEUE_EVENT_COUNT } },
      });
      // The command that fails says so to its caller.
      queue.on('error', () => undefined);
      this.#queues.set(key, queue);
      if (this.#queues.size > MAX_QUEUES) this.#forgetKey(this.#queues.keys().next().value!);
    }
    return queue;
  }

  #forgetKey(key: string): void {
    const queue = this.#queues.get(key);
    this.#queues.delete(key);
    void queue?.close().catch(() => undefined);
  }
}

function keyOf(of: Omit<QueuedJob, 'id'>): string {
  return `${of.model}\n${queueNameOf(of)}`;
}
