/**
 * QueueWorker: takes jobs off one BullMQ queue, keeps their locks, and settles them. A job is settled exactly once, after its terminal
 * event was written; one whose lock is lost belongs to somebody else.
 */
import { type Job as QueueJob, Worker } from 'bullmq';
import { queuedJobKey, queueKey, queuePrefix } from '../shared/keys.ts';
import { connectionOptions, type RedisClient } from './redis.ts';

/** A job that this process holds. `data` comes from the queue and is not yet checked. */
export interface TakenJob {
  id: string;
  data: unknown;
  /** From 1; more than 1 when an earlier holder went silent. */
  attempt: number;
  /** How often a holder went silent over it; our own late renewals, which say nothing against the job, are not counted. */
  deathCount: number;
  /** Off the queue for good. */
  complete(): Promise<void>;
  /** Back to the queue, for any batcher that serves it. */
  giveBack(): Promise<void>;
}

export interface QueueWorkerOptions {
  redisUrl: string;
  /** For commands of our own, and where it is a cluster's for BullMQ's; whoever gave it closes it. */
  redis: RedisClient;
  model: string;
  queueName: string;
  /** Whose locks these are. */
  batcherId: string;
  lockMs: number;
  /** Somebody else has the job now. */
  lost(jobId: string): void;
  failed(error: Error): void;
}

const LOCK_RENEWALS = 4;
/** Jobs of which it is remembered that we were late; a job that others finished would be remembered for ever. */
const REMEMBERED_LAPSES = 1_000;

export class QueueWorker {
  readonly #options: QueueWorkerOptions;
  readonly #worker: Worker;
  readonly #held = new Map<string, QueueJob>();
  /** By job: how often our own renewal came too late. */
  readonly #lapses = new Map<string, number>();
  #renewal: NodeJS.Timeout | undefined;

  constructor(options: QueueWorkerOptions) {
    this.#options = options;
    this.#worker = new Worker(options.queueName, null, {
      connection: options.redis.isCluster ? options.redis : connectionOptions(options.redisUrl),
      prefix: queuePrefix(options.model),
      name: options.batcherId,
      autorun: false,
      lockDuration: options.lockMs,
      stalledInterval: Math.ceil(options.lockMs / LOCK_RENEWALS),
      // How often a job may be tried is the batcher's decision, which ends it with an error event.
      maxStalledCount: 1_000_000,
      removeOnComplete: { count: 0 },
      removeOnFail: { count: 0 },
    });
    this.#worker.on('error', error => options.failed(error));
  }

  /** From here on it also gives jobs of silent holders back to the queue. */
  async start(): Promise<void> {
    await this.#worker.waitUntilReady();
    await this.#worker.startStalledCheckTimer();
    this.#renewal = setInterval(() => void this.#renewLocks(), this.#options.lockMs / LOCK_RENEWALS);
  }

  get queueName(): string {
    return this.#options.queueName;
  }

  get heldCount(): number {
    return this.#held.size;
  }

  /** The foremost job, without waiting for one. */
  async fetch(): Promise<TakenJob | undefined> {
    try {
      const queueJob = await this.#worker.getNextJob(this.#options.batcherId, { block: false });
      return queueJob && this.#hold(queueJob);
    } catch (error) {
      if (error instanceof SyntaxError || error instanceof TypeError) await this.#removeUnreadable();
      throw error;
    }
  }

  /** Held jobs are left to themselves: their locks run out, and others take them. */
  async close(): Promise<void> {
    clearInterval(this.#renewal);
    await this.#worker.close(true);
  }

  #hold(queueJob: QueueJob): TakenJob {
    const id = queueJob.id!;
    // The same job again: our own lock ran out. The earlier attempt here is fenced off like anyone else's.
    if (this.#held.has(id)) this.#lapsed(id);
    this.#held.set(id, queueJob);
    return {
      id,
      data: queueJob.data,
      attempt: queueJob.attemptsStarted + earlierAttempts(queueJob.data),
      deathCount: Math.max(0, queueJob.stalledCounter - (this.#lapses.get(id) ?? 0)),
      complete: () => this.#settle(queueJob, job => job.moveToCompleted(null, this.#options.batcherId, false)),
      giveBack: () => this.#settle(queueJob, job => this.#moveBack(job)),
    };
  }

  /**
   * BullMQ has taken a job whose hash it cannot read, so we do not have it: it would come back to somebody each time that its lock runs out.
   * One that another version could read is none of them: it is JSON.
   */
  async #removeUnreadable(): Promise<void> {
    const { redis, model, queueName, batcherId } = this.#options;
    const active = queueKey(model, queueName, 'active');
    for (const id of await redis.lrange(active, 0, -1)) {
      const key = queuedJobKey(model, queueName, id);
      const [lock, [data, opts]] = await Promise.all([redis.get(`${key}:lock`), redis.hmget(key, 'data', 'opts')]);
      if (lock !== batcherId || this.#held.has(id) || isReadable(data, opts)) continue;
      await redis.multi().lrem(active, 0, id).del(key, `${key}:lock`).exec();
      this.#options.failed(new Error(`job ${id} of ${queueName} cannot be read and was removed`));
    }
  }

  async #moveBack(queueJob: QueueJob): Promise<void> {
    await queueJob.moveToWait(this.#options.batcherId);
    // BullMQ wakes nobody for it.
    const { redis, model, queueName } = this.#options;
    await redis.zadd(queueKey(model, queueName, 'marker'), 0, '0');
  }

  async #settle(queueJob: QueueJob, move: (job: QueueJob) => Promise<unknown>): Promise<void> {
    if (this.#held.get(queueJob.id!) !== queueJob) return;
    this.#held.delete(queueJob.id!);
    this.#lapses.delete(queueJob.id!);
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
        this.#lapsed(id);
      }),
    );
  }

  #lapsed(jobId: string): void {
    this.#lapses.set(jobId, (this.#lapses.get(jobId) ?? 0) + 1);
    if (this.#lapses.size > REMEMBERED_LAPSES) this.#lapses.delete(this.#lapses.keys().next().value!);
    this.#options.lost(jobId);
  }
}

/** Of data that nobody has looked at yet. */
function earlierAttempts(data: unknown): number {
  const count: unknown = (data as { earlierAttempts?: unknown } | null)?.earlierAttempts;
  return Number.isSafeInteger(count) ? Math.max(0, count as number) : 0;
}

/** As BullMQ reads them. */
function isReadable(data: string | null | undefined, opts: string | null | undefined): boolean {
  try {
    JSON.parse(data || '{}');
    return typeof Object.entries(JSON.parse(opts || '{}') as object) === 'object';
  } catch {
    return false;
  }
}
