/** JobQueue: puts jobs on their model's queue and takes them off again; the one place of the gateway that knows BullMQ. */
import type { Job } from '../shared/job.ts';
import { CANCEL_LIFETIME_MS, cancelKey, queuePrefix, SHARED_QUEUE } from '../shared/keys.ts';
import { priorityOf } from './fair-queue.ts';
import type { RedisLink } from './redis.ts';
import { Queue } from './redis-driver.js';

/** A batcher decides itself when a job has been tried too often; BullMQ must not decide before it. */
const ATTEMPTS = 100;
/** Nobody reads BullMQ's own events. */
const QUEUE_EVENT_COUNT = 100;

/** A job by which it can be found again. */
export interface QueuedJob {
  id: string;
  model: string;
}

export class JobQueue {
  readonly #link: RedisLink;
  readonly #queues = new Map<string, Queue>();
  /** Taken back while Redis was away, and still to be. */
  readonly #owed = new Map<string, QueuedJob>();

  constructor(link: RedisLink) {
    this.#link = link;
  }

  /** Throws `dependency_unavailable`; the job may then be on the queue nevertheless, so it is withdrawn as soon as that can be. */
  async add(job: Job): Promise<void> {
    try {
      await this.#link.run(() =>
        this.#queue(job.model).add('generate', job, {
          jobId: job.id,
          priority: priorityOf(job),
          attempts: ATTEMPTS,
          removeOnComplete: true,
          removeOnFail: true,
        }),
      );
    } catch (error) {
      // A queue that could not set itself up stays that way.
      this.#queues.delete(job.model);
      this.#owed.set(job.id, { id: job.id, model: job.model });
      throw error;
    }
  }

  /** Tells a batcher that has the job to stop, and removes it from the queue when none has. Never throws: what fails is done later. */
  async withdraw(job: QueuedJob): Promise<void> {
    this.#owed.set(job.id, job);
    try {
      // The flag first: a batcher that takes the job in between sees it.
      await this.#link.run(client => client.set(cancelKey(job.id), '1', 'PX', CANCEL_LIFETIME_MS));
      await this.#link.run(() => this.#queue(job.model).remove(job.id));
      this.#owed.delete(job.id);
    } catch {
      // Redis is away.
    }
  }

  get owedCount(): number {
    return this.#owed.size;
  }

  async withdrawOwed(): Promise<void> {
    for (const job of [...this.#owed.values()]) {
      if (!this.#link.isConnected) return;
      await this.withdraw(job);
    }
  }

  /** How many waiting jobs stand before each, plus one; undefined for a job that no longer waits. */
  async positions(jobs: readonly QueuedJob[]): Promise<(number | undefined)[]> {
    const results = await this.#link.run(client => {
      const pipeline = client.pipeline();
      for (const { id, model } of jobs) pipeline.zrank(this.#queue(model).toKey('prioritized'), id);
      return pipeline.exec();
    });
    return jobs.map((_, index) => {
      const rank = results?.[index]?.[1];
      return typeof rank === 'number' ? rank + 1 : undefined;
    });
  }

  #queue(model: string): Queue {
    let queue = this.#queues.get(model);
    if (queue === undefined) {
      queue = new Queue(SHARED_QUEUE, {
        connection: this.#link.client,
        prefix: queuePrefix(model),
        streams: { events: { maxLen: QUEUE_EVENT_COUNT } },
      });
      // The command that fails says so to its caller.
      queue.on('error', () => undefined);
      this.#queues.set(model, queue);
    }
    return queue;
  }
}
