/**
 * HeldJobs: the jobs that a batcher has taken and not settled, each with what speaks for it, and every way in which one leaves: finished,
 * cancelled, fenced, given back. What else hangs on a job is its owner's, who is told when one is let go.
 */
import type { ErrorCode } from '../shared/errors.ts';
import { Job } from '../shared/job.ts';
import type { Standing } from './outbox.ts';
import type { Publisher, Speaker } from './publisher.ts';
import type { TakenJob } from './queue-worker.ts';

export interface JobSpeaker extends Speaker {
  readonly job: Job;
  fail(code: ErrorCode, message: string, param?: string): void;
}

export interface HeldJobsOptions<S extends JobSpeaker> {
  publisher: Pick<Publisher<S>, 'add' | 'drop'>;
  /** A client is gone: its job is to end as failed. */
  cancel(speaker: S): void;
  /** What hangs on it is to go. */
  onLetGo(speaker: S): void;
  /** One was let go because somebody else has it. */
  onLost?: (() => void) | undefined;
  /** Its terminal event is recorded. */
  onEnded?: ((speaker: S) => void) | undefined;
  onError(error: Error, job: Pick<Job, 'id' | 'traceparent'>): void;
}

interface Held<S> {
  taken: TakenJob;
  speaker: S;
}

export class HeldJobs<S extends JobSpeaker> {
  readonly #options: HeldJobsOptions<S>;
  readonly #byId = new Map<string, Held<S>>();
  #arrivingCount = 0;

  constructor(options: HeldJobsOptions<S>) {
    this.#options = options;
  }

  /** Jobs taken and not settled. */
  get count(): number {
    return this.#byId.size + this.#arrivingCount;
  }

  /** Taken, and not yet started. */
  get arrivingCount(): number {
    return this.#arrivingCount;
  }

  /** `start` gives the job its speaker and holds it, or lets it be; when it throws, `passOn` has the job. `wake` in any case. */
  async arrive(taken: TakenJob, way: { start(): Promise<void>; passOn(): Promise<void>; wake(): void }): Promise<void> {
    this.#arrivingCount++;
    try {
      await way.start();
    } catch (error) {
      this.#options.onError(error as Error, taken);
      await way.passOn();
    } finally {
      this.#arrivingCount--;
      way.wake();
    }
  }

  hold(taken: TakenJob, speaker: S): void {
    this.#byId.set(speaker.job.id, { taken, speaker });
    this.#options.publisher.add(speaker);
  }

  /** Somebody else has the job: no more is said of it here. */
  lost(jobId: string): void {
    this.#drop(this.#byId.get(jobId));
  }

  /** What Redis says of a job that is not simply to go on. */
  stands(speaker: S, standing: Exclude<Standing, 'ok'>): void {
    switch (standing) {
      case 'cancelled':
        this.#options.cancel(speaker);
        return;
      case 'fenced':
        this.lost(speaker.job.id);
        return;
      case 'behind': {
        // The next attempt begins where the record ends.
        const held = this.#byId.get(speaker.job.id);
        if (held?.speaker !== speaker) return;
        this.#drop(held);
        void held.taken.giveBack();
        return;
      }
      case 'broken':
        this.#options.onError(new Error('its record in Redis is of another type and cannot be written'), speaker.job);
        this.#settle(speaker, () => {
          // The outbox has told it to those who listen.
          speaker.fail('generation_failed', 'The answer could not be recorded.');
        });
    }
  }

  /** Its terminal event is recorded: off the queue with it. */
  settled(speaker: S): void {
    this.#settle(speaker);
  }

  /** All that is left goes back to the queue, for other batchers. */
  async giveBackAll(): Promise<void> {
    const all = [...this.#byId.values()];
    for (const held of all) {
      this.#options.publisher.drop(held.speaker);
      this.#letGo(held);
    }
    await Promise.all(all.map(held => held.taken.giveBack()));
  }

  #drop(held: Held<S> | undefined): void {
    if (held === undefined) return;
    this.#options.publisher.drop(held.speaker);
    this.#letGo(held);
    this.#options.onLost?.();
  }

  #settle(speaker: S, end?: () => void): void {
    const held = this.#byId.get(speaker.job.id);
    if (held?.speaker === speaker) this.#letGo(held);
    end?.();
    if (held?.speaker !== speaker) return;
    this.#options.onEnded?.(speaker);
    void held.taken.complete();
  }

  #letGo({ speaker }: Held<S>): void {
    this.#byId.delete(speaker.job.id);
    this.#options.onLetGo(speaker);
  }
}

/** The job, checked; undefined, with the reason told, where it can be nobody's. Events and locks go by the id: under another's it would speak in its place. */
export function readJob(taken: TakenJob, onError: HeldJobsOptions<JobSpeaker>['onError']): Job | undefined {
  const parsed = Job.safeParse(taken.data);
  if (parsed.success && parsed.data.id === taken.id) return parsed.data;
  onError(new Error(`unreadable job: ${parsed.error?.issues[0]?.message ?? 'it has the id of another'}`), taken);
  return undefined;
}
