/**
 * Generation: one job while it is in the batcher: what was sampled for each choice, and the events that tell of it. Its events are
 * numbered without a gap, and after the terminal one it gives no more. It knows nothing of rows, steps or Redis.
 */

import type { ErrorCode } from '../shared/errors.ts';
import type { Job } from '../shared/job.ts';
import type { FinishReason, Timings, TokenEvent, TokenLogprob, Usage } from '../shared/token-event.ts';
import type { Choice, ChoiceMaker } from './choice.ts';
import type { Recipient } from './outbox.ts';

export interface GenerationOptions {
  job: Job;
  attempt: number;
  promptTokenIds: readonly number[];
  choiceMaker: ChoiceMaker;
  /** Epoch milliseconds. */
  clock(): number;
}

export class Generation {
  readonly job: Job;
  readonly recipient: Recipient;
  readonly promptTokenIds: readonly number[];
  readonly choices: readonly Choice[];
  readonly #clock: () => number;
  readonly #takenAt: number;
  #seq = 0;
  #isOver = false;
  #endReason: string | undefined;
  #cachedTokens = 0;
  #prefillStartedAt: number | undefined;
  #firstTokenAt: number | undefined;
  #lastTokenAt: number | undefined;
  #unsent: TokenEvent[] = [];

  constructor(options: GenerationOptions) {
    const { job } = options;
    this.job = job;
    this.promptTokenIds = options.promptTokenIds;
    this.recipient = { jobId: job.id, attempt: options.attempt, shard: job.shard };
    this.#clock = options.clock;
    this.#takenAt = options.clock();
    this.choices = options.choiceMaker.choicesOf(job, { idPrefix: this.scheduleId, promptTokenIds: options.promptTokenIds });
  }

  /** Its name in the scheduler: an earlier attempt at the same job may still be leaving it. */
  get scheduleId(): string {
    return `${this.job.id}@${this.recipient.attempt}`;
  }

  /** How it ended, for the books: a finish reason, or the code of its error. */
  get endReason(): string | undefined {
    return this.#endReason;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Takes over what an earlier attempt recorded; afterwards each choice stands where its record ends. */
  resume(recorded: readonly TokenEvent[]): void {
    for (const event of recorded) {
      this.#seq = event.seq + 1;
      if (event.type === 'finish' || event.type === 'error') this.#isOver = true;
      if (event.type === 'delta') this.choices[event.choice]?.replay(event.tokenIds, event.finishReason);
    }
  }

  accept(): void {
    if (this.#seq > 0) return;
    this.#emit({ type: 'accepted', promptTokens: this.promptTokenIds.length });
  }

  /** The first chunk of its prompt goes into the next step; `cachedTokens` of it need not be computed. */
  prefillStarts(cachedTokens: number): void {
    this.#prefillStartedAt ??= this.#clock();
    this.#cachedTokens = Math.max(this.#cachedTokens, cachedTokens);
  }

  tokenSampled(): void {
    this.#lastTokenAt = this.#clock();
    this.#firstTokenAt ??= this.#lastTokenAt;
  }

  tell(choice: Choice, delta: { tokenIds: number[]; text: string; logprobs?: TokenLogprob[]; finishReason?: FinishReason }): void {
    this.#emit({ type: 'delta', choice: choice.index, ...delta });
    if (this.choices.every(each => each.finishReason !== undefined)) this.#finish();
  }

  fail(code: ErrorCode, message: string, param?: string): void {
    if (this.#isOver) return;
    this.#emit({ type: 'error', code, message, ...(param !== undefined && { param }) });
    this.#endReason = code;
    this.#isOver = true;
  }

  /** Events since the last call. */
  takeEvents(): TokenEvent[] {
    const events = this.#unsent;
    this.#unsent = [];
    return events;
  }

  get usage(): Usage {
    return {
      promptTokens: this.promptTokenIds.length,
      completionTokens: this.choices.reduce((sum, choice) => sum + choice.completionTokens, 0),
      cachedTokens: this.#cachedTokens,
    };
  }

  get timings(): Timings {
    const prefillStartedAt = this.#prefillStartedAt ?? this.#takenAt;
    const firstTokenAt = this.#firstTokenAt ?? prefillStartedAt;
    const decodeMs = (this.#lastTokenAt ?? firstTokenAt) - firstTokenAt;
    const decodedCount = Math.max(0, this.usage.completionTokens - this.choices.length);
    return {
      queueMs: Math.max(0, prefillStartedAt - this.job.submittedAt),
      prefillMs: firstTokenAt - prefillStartedAt,
      ttftMs: Math.max(0, firstTokenAt - this.job.submittedAt),
      decodeTokensPerSecond: decodeMs > 0 ? Number(((decodedCount / decodeMs) * 1000).toFixed(2)) : 0,
    };
  }

  #finish(): void {
    this.#emit({ type: 'finish', usage: this.usage, timings: this.timings });
    this.#endReason = this.choices.find(choice => choice.finishReason === 'length') === undefined ? 'stop' : 'length';
    this.#isOver = true;
  }

  #emit(event: EventBody): void {
    if (this.#isOver) return;
    const head = { id: this.job.id, attempt: this.recipient.attempt, seq: this.#seq++ };
    this.#unsent.push({ ...head, ...event } as TokenEvent);
  }
}

type EventBody = TokenEvent extends infer Each ? (Each extends TokenEvent ? Omit<Each, 'id' | 'attempt' | 'seq'> : never) : never;
