/**
 * Intake: takes jobs from the queue that is meant for this batcher, the one that its model's batchers share, and those of batchers that are
 * gone, when there is room, in the order of their priorities over all of them. What it took is held by the queue's worker until settled.
 *
 *   room? ── foremost of the queues ── fetch ── take
 *                 └ none ── wait for any
 */
import { ownQueue, SHARED_QUEUE } from '../shared/keys.ts';
import { QueueHeads } from './queue-heads.ts';
import { QueueWorker, type TakenJob } from './queue-worker.ts';
import { openRedis, type RedisClient } from './redis.ts';

export interface IntakeOptions {
  redisUrl: string;
  model: string;
  batcherId: string;
  /** Besides those that are adopted; the batcher's own and the shared one when absent. At equal priorities the earlier goes first. */
  queueNames?: readonly string[];
  lockMs: number;
  /** Resolves when another job may be taken. */
  room(): Promise<void>;
  take(job: TakenJob): void;
  /** Somebody else has the job now. */
  lost(jobId: string): void;
  failed(error: Error): void;
}

const RETRY_PAUSE_MS = 200;

export class Intake {
  readonly #options: IntakeOptions;
  readonly #redis: RedisClient;
  readonly #blocking: RedisClient;
  readonly #heads: QueueHeads;
  readonly #queueNames: readonly string[];
  /** By name, in order: own, shared, adopted. */
  readonly #workers = new Map<string, QueueWorker>();
  /** Takes nothing any more, and has jobs to settle. */
  readonly #retired = new Set<QueueWorker>();
  #closing = false;
  readonly #closed = Promise.withResolvers<void>();
  #loop: Promise<void> | undefined;
  /** One change of the queues at a time. */
  #change: Promise<void> = Promise.resolve();

  constructor(options: IntakeOptions) {
    this.#options = options;
    this.#queueNames = options.queueNames ?? [ownQueue(options.batcherId), SHARED_QUEUE];
    this.#redis = openRedis(options.redisUrl);
    this.#blocking = openRedis(options.redisUrl);
    for (const redis of [this.#redis, this.#blocking]) redis.on('error', options.failed);
    this.#heads = new QueueHeads({ model: options.model, redis: this.#redis, blocking: this.#blocking });
  }

  async start(): Promise<void> {
    for (const name of this.#queueNames) await this.#open(name);
    this.#loop = this.#fetch();
  }

  get heldCount(): number {
    return [...this.#workers.values(), ...this.#retired].reduce((sum, worker) => sum + worker.heldCount, 0);
  }

  /** Serves the own queues of these batchers besides, and those of no others any more. */
  adopt(batcherIds: readonly string[]): Promise<void> {
    this.#change = this.#change.then(() => this.#adopt(batcherIds.map(ownQueue))).catch(error => this.#options.failed(error as Error));
    return this.#change;
  }

  /** Takes nothing new from now on; held jobs keep their locks until close. */
  stopTaking(): void {
    this.#closing = true;
    this.#closed.resolve();
  }

  async close(): Promise<void> {
    this.stopTaking();
    await this.#change;
    // It may be waiting for a job.
    this.#blocking.disconnect();
    await this.#loop;
    await Promise.all([...this.#workers.values(), ...this.#retired].map(worker => worker.close()));
    this.#redis.disconnect();
  }

  async #open(queueName: string): Promise<void> {
    const { redisUrl, model, batcherId, lockMs, lost, failed } = this.#options;
    const worker = new QueueWorker({ redisUrl, redis: this.#redis, model, queueName, batcherId, lockMs, lost, failed });
    await worker.start();
    this.#workers.set(queueName, worker);
  }

  async #adopt(names: readonly string[]): Promise<void> {
    const wanted = new Set([...this.#queueNames, ...names]);
    for (const [name, worker] of this.#workers) {
      if (wanted.has(name)) continue;
      this.#workers.delete(name);
      this.#retired.add(worker);
    }
    for (const name of wanted) if (!this.#workers.has(name) && !this.#closing) await this.#open(name);
    for (const worker of this.#retired) {
      if (worker.heldCount > 0) continue;
      this.#retired.delete(worker);
      await worker.close();
    }
  }

  async #fetch(): Promise<void> {
    while (!this.#closing) {
      await Promise.race([this.#options.room(), this.#closed.promise]);
      if (this.#closing) return;
      try {
        await this.#fetchOne();
      } catch (error) {
        if (this.#closing) return;
        this.#options.failed(error as Error);
        await new Promise(resolve => setTimeout(resolve, RETRY_PAUSE_MS));
      }
    }
  }

  async #fetchOne(): Promise<void> {
    const names = [...this.#workers.keys()];
    const name = (await this.#heads.foremost(names)) ?? (await this.#heads.wait(names));
    if (name === undefined) return;
    const worker = this.#workers.get(name);
    // We were called, and cannot come any more.
    if (this.#closing || worker === undefined) return this.#heads.call(name);
    const job = await worker.fetch();
    if (job === undefined) return;
    // The fetch was under way when taking ended.
    if (this.#closing) await job.giveBack();
    else this.#options.take(job);
  }
}
