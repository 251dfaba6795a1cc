/**
 * Admission: whether a job may join its queue: whether it would be begun before its deadline, and whether the queue holds no more tokens
 * than it may. What is refused is refused at once, with the time after which a try may succeed.
 */
import { ApiError } from './errors.ts';
import { type Job, promptsOf } from './job.ts';
import type { ModelLoad } from './model-load.ts';
import type { QueueEstimate } from './queue-estimate.ts';

export interface AdmissionSettings {
  /** The longest estimated wait with which a job is let in, where its client says no other. */
  maxWaitMs: number;
  /** Prompts and answers, as expected, that may stand before a job. */
  maxQueuedTokens: number;
  /** Of an answer, before any has ended. */
  reservedTokens: number;
}

/** Of a gateway that is told nothing else. */
export const DEFAULT_ADMISSION: AdmissionSettings = { maxWaitMs: 120_000, maxQueuedTokens: 2_000_000, reservedTokens: 1_024 };

export interface AdmissionOptions {
  estimate: Pick<QueueEstimate, 'waitMs' | 'meanTokens'>;
  settings: AdmissionSettings;
}

/** What of a job counts here. */
export interface Applicant {
  model: string;
  /** Expected, prompts and answers together. */
  tokens: number;
  /** What the client said; undefined for the setting. */
  maxWaitMs: number | undefined;
  /** Of a job that waits, on average; undefined where none is known. */
  queued?: { tokens: number; promptTokens: number } | undefined;
}

/** No queue is longer. */
const MAX_AHEAD_COUNT = 1_000_000;
const MAX_RETRY_AFTER_SECONDS = 3_600;

export class Admission {
  readonly #options: AdmissionOptions;

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  /** Tokens that a job is expected to take: an answer is as long as the model's answers are, or as its bound. */
  expectedTokens(job: Pick<Job, 'model' | 'stopping' | 'choiceCount' | 'prompt' | 'morePrompts'>, promptTokens: number): number {
    const usual = this.#options.estimate.meanTokens(job.model)?.completion ?? this.#options.settings.reservedTokens;
    const answerTokens = Math.min(job.stopping.maxTokens ?? usual, usual);
    return promptTokens + answerTokens * job.choiceCount * promptsOf(job).length;
  }

  /** How many jobs may stand before it; -1 when it has to be refused even as the first. */
  maxAheadCount(job: Applicant, load: ModelLoad): number {
    const maxWaitMs = job.maxWaitMs ?? this.#options.settings.maxWaitMs;
    const tokensEach = this.#tokensEach(job);
    // An empty queue takes a job of any length.
    const byTokens = Math.max(0, Math.floor((this.#options.settings.maxQueuedTokens - job.tokens) / tokensEach));
    const isInTime = (aheadCount: number) => (this.#waitMs(job, aheadCount, load) ?? 0) <= maxWaitMs;
    if (!isInTime(0)) return -1;
    // The wait grows with the place.
    let [low, high] = [0, Math.min(byTokens, MAX_AHEAD_COUNT)];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (isInTime(middle)) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** `queue_full`, for a job before which so many would stand. */
  refusal(job: Applicant, aheadCount: number, load: ModelLoad): ApiError {
    const maxWaitMs = job.maxWaitMs ?? this.#options.settings.maxWaitMs;
    const waitMs = this.#waitMs(job, aheadCount, load);
    if (waitMs !== undefined && waitMs > maxWaitMs) {
      return new ApiError(
        'queue_full',
        `The request would wait about ${seconds(waitMs)} to be begun, longer than the ${seconds(maxWaitMs)} that it may wait.`,
        { retryAfterSeconds: wholeSeconds(waitMs - maxWaitMs) },
      );
    }
    const tokensEach = this.#tokensEach(job);
    const excessCount = aheadCount + 1 - Math.max(1, Math.floor(this.#options.settings.maxQueuedTokens / tokensEach));
    const clearedMs = waitMs === undefined || aheadCount === 0 ? 0 : (waitMs / aheadCount) * Math.max(1, excessCount);
    return new ApiError(
      'queue_full',
      `The queue holds about ${Math.round(aheadCount * tokensEach)} tokens before this request; ${this.#options.settings.maxQueuedTokens} is the most.`,
      { retryAfterSeconds: wholeSeconds(clearedMs) },
    );
  }

  #tokensEach(job: Applicant): number {
    const usual = this.#options.estimate.meanTokens(job.model);
    return Math.max(1, job.queued?.tokens ?? (usual === undefined ? job.tokens : usual.prompt + usual.completion));
  }

  /** Until it is begun; its own prompt is not part of that. */
  #waitMs(job: Applicant, aheadCount: number, load: ModelLoad): number | undefined {
    const { model, queued } = job;
    const place = { model, position: aheadCount + 1, promptTokensBound: 0, queuedPromptTokens: queued?.promptTokens };
    return this.#options.estimate.waitMs(place, load);
  }
}

function wholeSeconds(ms: number): number {
  return Math.min(MAX_RETRY_AFTER_SECONDS, Math.max(1, Math.ceil(ms / 1_000)));
}

function seconds(ms: number): string {
  return `${Math.round(ms / 100) / 10} s`;
}
