/**
 * Intake: takes jobs off a model's queue when there is room, keeps their locks, and settles them. A job is settled exactly once, after its
 * terminal event was written; one whose lock is lost belongs to somebody else.
 */
import { type Job as QueueJob, Worker } from 'bullmq';
import { queuePrefix } from '../shared/keys.ts';
import { connectionOptions } from './redis.ts';

/** A job that this process holds. `data` comes from the queue and is not yet checked. */
export interface TakenJob {
  id: string;
  data: unknown;
  /** From 1; more than 1 when an earlier holder went silent. */
  attempt: number;
  /** Off the queue for good. */
  complete(): Promise<void>;
  /** Back to the queue, for any batcher. */
  giveBack(): Promise<void>;
}

export interface IntakeOptions {
  redisUrl: string;
  model: string;
  queueName: string;
  batcherId: string;
  lockMs: number;
  /** Resolves when another job may be taken. */
  room(): Promise<void>;
  take(job: TakenJob): void;
  /** Somebody else has the job now. */
  lost(jobId: string): void;
  failed(error: Error): void;
}

const LOCK_RENEWALS = 4;
/** Seconds that one blocking fetch waits at most. */
const FETCH_WAIT_S = 5;
const RETRY_PAUSE_MS = 200;

export class Intake {
  readonly #options: IntakeOptions;
  readonly #worker: Worker;
  readonly #held = new Map<string, QueueJob>();
  #closing = false;
  readonly #closed = Promise.withResolvers<void>();
  #loop: Promise<void> | undefined;
  #renewal: NodeJS.Timeout | undefined;

  constructor(options: IntakeOptions) {
    this.#options = options;
    this.#worker = new Worker(options.queueName, null, {
      connection: connectionOptions(options.redisUrl),
      prefix: queuePrefix(options.model),
      name: options.batcherId,
      autorun: false,
      lockDuration: options.lockMs,
      stalledInterval: Math.ceil(options.lockMs / LOCK_RENEWALS),
      // How often a job may be tried is the batcher's decision, which ends it with an error event.
      maxStalledCount: 1_000_000,
      drainDelay: FETCH_WAIT_S,
      removeOnComplete: { count: 0 },
      removeOnFail: { count: 0 },
    });
    this.#worker.on('error', error => options.failed(error));
  }

  async start(): Promise<void> {
    await this.#worker.waitUntilReady();
    await this.#worker.startStalledCheckTimer();
    this.#renewal = setInterval(() => void this.#renewLocks(), this.#options.lockMs / LOCK_RENEWALS);
    this.#loop = this.#fetch();
  }

  get heldCount(): number {
    return this.#held.size;
  }

  /** Takes nothing new from now on; held jobs keep their locks until close. */
  stopTaking(): void {
    this.#closing = true;
    this.#closed.resolve();
  }

  async close(): Promise<void> {
    this.stopTaking();
    clearInterval(this.#renewal);
    await this.#worker.close(true);
    await this.#loop;
  }

  async #fetch(): Promise<void> {
    while (!this.#closing) {
      await Promise.race([this.#options.room(), this.#closed.promise]);
      if (this.#closing) return;
      try {
        const queueJob = await this.#worker.getNextJob(this.#options.batcherId);
        if (queueJob === undefined) continue;
        // The fetch was under way when taking ended.
        if (this.#closing) await queueJob.moveToWait(this.#options.batcherId);
        else this.#hold(queueJob);
      } catch (error) {
        if (this.#closing) return;
        this.#options.failed(error as Error);
        await new Promise(resolve => setTimeout(resolve, RETRY_PAUSE_MS));
      }
    }
  }

  #hold(queueJob: QueueJob): void {
    const id = queueJob.id!;
    // The same job again: our own lock ran out. The earlier attempt here is fenced off like anyone else's.
    if (this.#held.has(id)) this.#options.lost(id);
    this.#held.set(id, queueJob);
    this.#options.take({
      id,
      data: queueJob.data,
      attempt: queueJob.attemptsStarted,
      complete: () => this.#settle(queueJob, job => job.moveToCompleted(null, this.#options.batcherId, false)),
      giveBack: () => this.#settle(queueJob, job => job.moveToWait(this.#options.batcherId)),
    });
  }

  async #settle(queueJob: QueueJob, move: (job: QueueJob) => Promise<unknown>): Promise<void> {
    if (this.#held.get(queueJob.id!) !== queueJob) return;
    this.#held.delete(queueJob.id!);
    try {
      await move(queueJob);
    } catch (error) {
      // The lock ran out and the job is another's, or it was removed: its record is fenced, so nothing is told twice.
      this.#options.failed(error as Error);
    }
  }

  async #renewLocks(): Promise<void> {
    await Promise.all(
      [...this.#held].map(async ([id, queueJob]) => {
        const renewed = await queueJob.extendLock(this.#options.batcherId, this.#options.lockMs).catch(() => undefined);
        if (renewed !== 0 || this.#held.get(id) !== queueJob) return;
        this.#held.delete(id);
        this.#options.lost(id);
      }),
    );
  }
}
