/**
 * QuickJobs: the jobs of the quick queue that this batcher holds. Each is answered by the quick service, its events recorded in one go, and
 * settled; one that comes back from a batcher that died is answered once, by whoever has it last.
 */
import { ApiError, type ErrorCode } from '../../shared/errors.ts';
import type { Job } from '../../shared/job.ts';
import { BULKY_LIFETIME_MS } from '../../shared/keys.ts';
import { isTerminal, type TokenEvent } from '../../shared/token-event.ts';
import { readJob } from '../held-jobs.ts';
import type { Outbox, Recipient } from '../outbox.ts';
import type { TakenJob } from '../queue-worker.ts';
import type { QuickAnswer, QuickQuestion } from './quick-answer.ts';

export interface QuickJobsOptions {
  /** Throws ApiError for what is the client's fault. */
  ask(question: QuickQuestion): Promise<QuickAnswer>;
  outbox: Pick<Outbox, 'claim' | 'send'>;
  /** A job over which so many holders died, or that failed here so often, fails for good. */
  maxAttempts: number;
  clock(): number;
  onAnswered?(kind: string, ms: number): void;
  onError(error: Error, job: Pick<Job, 'id' | 'traceparent'>): void;
}

/** Taken ahead of the thread, which answers one at a time. */
const MAX_HELD = 4;
const RETRY_PAUSE_MS = 250;

export class QuickJobs {
  readonly #options: QuickJobsOptions;
  readonly #held = new Set<string>();
  readonly #submitted = new Set<Promise<void>>();

  constructor(options: QuickJobsOptions) {
    this.#options = options;
  }

  get count(): number {
    return this.#held.size;
  }

  get hasRoom(): boolean {
    return this.#held.size < MAX_HELD;
  }

  /** Somebody else has the job: no more is said of it here. */
  lost(jobId: string): void {
    this.#held.delete(jobId);
  }

  async submit(taken: TakenJob): Promise<void> {
    const submitted = this.#submit(taken);
    this.#submitted.add(submitted);
    await submitted;
    this.#submitted.delete(submitted);
  }

  /** Resolves when all that was submitted is settled. */
  async idle(): Promise<void> {
    await Promise.all(this.#submitted);
  }

  async #submit(taken: TakenJob): Promise<void> {
    this.#held.add(taken.id);
    try {
      await this.#answer(taken);
    } catch (error) {
      this.#options.onError(error as Error, taken);
      await taken.giveBack();
    } finally {
      this.#held.delete(taken.id);
    }
  }

  async #answer(taken: TakenJob): Promise<void> {
    const job = readJob(taken, this.#options.onError);
    if (job === undefined) return await taken.complete();
    const recipient: Recipient = { jobId: job.id, attempt: taken.attempt, shard: job.shard, lifetimeMs: BULKY_LIFETIME_MS };
    let seq = 0;
    if (taken.attempt > 1) {
      const { standing, events } = await this.#options.outbox.claim(recipient);
      if (standing === 'fenced') return;
      if (events.some(isTerminal)) return await taken.complete();
      seq = events.length;
    }
    const startedAt = this.#options.clock();
    const bodies = await this.#bodies(job, taken);
    const events = bodies.map((body, index) => ({ id: job.id, attempt: taken.attempt, seq: seq + index, ...body }) as TokenEvent);
    if (!this.#held.has(job.id)) return;
    await this.#send(recipient, events);
    this.#options.onAnswered?.(job.task?.kind ?? 'none', this.#options.clock() - startedAt);
    await taken.complete();
  }

  async #bodies(job: Job, taken: TakenJob): Promise<object[]> {
    const { clock, maxAttempts } = this.#options;
    const queueMs = Math.max(0, clock() - job.submittedAt);
    const timings = { queueMs, prefillMs: 0, ttftMs: queueMs, decodeTokensPerSecond: 0 };
    try {
      if (taken.deathCount >= maxAttempts) {
        throw new ApiError(
          'generation_failed',
          `Batchers ended ${taken.deathCount} times while they worked on this request; it is not tried again.`,
        );
      }
      const answer = await this.#options.ask({ prompt: job.prompt, task: job.task });
      return [
        { type: 'accepted', promptTokens: 0 },
        answer,
        { type: 'finish', usage: { promptTokens: 0, completionTokens: 0, cachedTokens: 0 }, timings },
      ];
    } catch (error) {
      if (error instanceof ApiError) return [failure(error.code, error.message, error.param)];
      if (taken.attempt < maxAttempts) throw error;
      this.#options.onError(error as Error, job);
      return [failure('generation_failed', 'The request could not be answered.')];
    }
  }

  /** Until Redis has them. */
  async #send(recipient: Recipient, events: readonly TokenEvent[]): Promise<void> {
    for (;;) {
      try {
        await this.#options.outbox.send([{ recipient, events }]);
        return;
      } catch (error) {
        this.#options.onError(error as Error, { id: recipient.jobId });
        await new Promise(resolve => setTimeout(resolve, RETRY_PAUSE_MS));
      }
    }
  }
}

function failure(code: ErrorCode, message: string, param?: string): object {
  return { type: 'error', code, message, ...(param !== undefined && { param }) };
}
