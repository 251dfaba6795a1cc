/**
 * Generation: one job while it is in the batcher: what was sampled for each choice of each prompt, and the events that tell of it. Its events are
 * numbered without a gap, and after the terminal one it gives no more. It knows nothing of rows, steps or Redis.
 */
import type { ErrorCode } from '../shared/errors.ts';
import type { Job } from '../shared/job.ts';
import type { Timings, TokenEvent, Usage } from '../shared/token-event.ts';
import type { Choice, ChoiceDelta } from './choice.ts';
import { DeathRecord } from './death-record.ts';
import { EventLog } from './event-log.ts';
import type { Recipient } from './outbox.ts';
import type { PromptBranch } from './prompt-branch.ts';
import type { EchoPiece } from './prompt-echo.ts';

export interface GenerationOptions {
  job: Job;
  attempt: number;
  /** Epoch milliseconds. */
  clock(): number;
}

export class Generation {
  readonly job: Job;
  readonly recipient: Recipient;
  readonly deaths: DeathRecord;
  readonly #clock: () => number;
  readonly #takenAt: number;
  readonly #log: EventLog;
  #branches: readonly PromptBranch[] = [];
  #choices: readonly Choice[] = [];
  #prefillStartedAt: number | undefined;
  #firstTokenAt: number | undefined;
  #lastTokenAt: number | undefined;

  constructor(options: GenerationOptions) {
    const { job } = options;
    this.job = job;
    this.recipient = { jobId: job.id, attempt: options.attempt, shard: job.shard };
    this.deaths = new DeathRecord(options.attempt);
    this.#log = new EventLog(this.recipient);
    this.#clock = options.clock;
    this.#takenAt = options.clock();
  }

  /** Its name in the scheduler: an earlier attempt at the same job may still be leaving it. */
  get scheduleId(): string {
    return `${this.job.id}@${this.recipient.attempt}`;
  }

  /** Its prompts, with their choices. Empty while nothing is known of them, or when they were refused. */
  get branches(): readonly PromptBranch[] {
    return this.#branches;
  }

  open(branches: readonly PromptBranch[]): void {
    this.#branches = branches;
    this.#choices = branches.flatMap(branch => branch.choices);
  }

  /** How it ended, for the books: a finish reason, or the code of its error. */
  get endReason(): string | undefined {
    return this.#log.endReason;
  }

  get isOver(): boolean {
    return this.#log.isOver;
  }

  /** Takes over what an earlier attempt recorded; afterwards each choice stands where its record ends. */
  resume(recorded: readonly TokenEvent[]): void {
    for (const event of recorded) {
      this.#log.follow(event);
      this.deaths.follow(event);
      if (event.type === 'echo') this.#branches[event.prompt]?.echo?.skip(event.tokenCount);
      if (event.type === 'delta') this.#choices[event.choice]?.replay(event);
    }
  }

  accept(): void {
    this.#log.accept(this.usage.promptTokens);
    for (const branch of this.#branches) {
      const { echo } = branch;
      if (echo !== undefined && !echo.isScored && !echo.isTold) this.echo(branch, echo.rest());
    }
    // An earlier attempt may have told everything but the end.
    this.#finishWhenTold();
  }

  /** It is about to run apart from other suspects. */
  tried(): void {
    this.#log.add({ type: 'tried' });
  }

  /** The first chunk of a prompt goes into the next step; `cachedTokens` of it need not be computed. */
  prefillStarts(branch: PromptBranch, cachedTokens: number): void {
    this.#prefillStartedAt ??= this.#clock();
    branch.cachedTokens = Math.max(branch.cachedTokens, cachedTokens);
  }

  /** The prompt of a choice was computed, and nothing is sampled for it. */
  prefillEnded(): void {
    this.#firstTokenAt ??= this.#clock();
  }

  tokenSampled(): void {
    this.#lastTokenAt = this.#clock();
    this.#firstTokenAt ??= this.#lastTokenAt;
  }

  tell(choice: Choice, delta: ChoiceDelta): void {
    this.#log.add({ type: 'delta', choice: choice.index, ...delta });
    this.#finishWhenTold();
  }

  echo(branch: PromptBranch, piece: EchoPiece): void {
    this.#log.add({ type: 'echo', prompt: branch.index, ...piece });
  }

  fail(code: ErrorCode, message: string, param?: string): void {
    this.#log.fail(code, message, param);
  }

  /** Events since the last call. */
  takeEvents(): TokenEvent[] {
    return this.#log.take();
  }

  get usage(): Usage {
    const reasoning = this.#choices.flatMap(choice => choice.reasoningTokens ?? []);
    return {
      promptTokens: this.#branches.reduce((sum, branch) => sum + branch.promptTokenIds.length, 0),
      completionTokens: this.#choices.reduce((sum, choice) => sum + choice.completionTokens, 0),
      cachedTokens: this.#branches.reduce((sum, branch) => sum + branch.cachedTokens, 0),
      ...(reasoning.length > 0 && { reasoningTokens: reasoning.reduce((sum, count) => sum + count, 0) }),
    };
  }

  get timings(): Timings {
    const prefillStartedAt = this.#prefillStartedAt ?? this.#takenAt;
    const firstTokenAt = this.#firstTokenAt ?? prefillStartedAt;
    const decodeMs = (this.#lastTokenAt ?? firstTokenAt) - firstTokenAt;
    const decodedCount = Math.max(0, this.usage.completionTokens - this.#choices.length);
    return {
      queueMs: Math.max(0, prefillStartedAt - this.job.submittedAt),
      prefillMs: firstTokenAt - prefillStartedAt,
      ttftMs: Math.max(0, firstTokenAt - this.job.submittedAt),
      decodeTokensPerSecond: decodeMs > 0 ? Number(((decodedCount / decodeMs) * 1000).toFixed(2)) : 0,
    };
  }

  #finishWhenTold(): void {
    if (this.#choices.length === 0 || this.#choices.some(choice => choice.finishReason === undefined)) return;
    const reasons = new Set(this.#choices.map(choice => choice.finishReason));
    const reason = (['length', 'tool_calls'] as const).find(one => reasons.has(one)) ?? 'stop';
    this.#log.end({ type: 'finish', usage: this.usage, timings: this.timings }, reason);
  }
}
