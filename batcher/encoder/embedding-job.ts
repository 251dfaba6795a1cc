/**
 * EmbeddingJob: one job while it is in the batcher: its texts as tokens, how far they are embedded, and the events that tell of it. Its texts
 * are taken and told in order; its events are numbered without a gap, and after the terminal one it gives no more.
 */
import type { ErrorCode } from '../../shared/errors.ts';
import type { Job } from '../../shared/job.ts';
import { BULKY_LIFETIME_MS } from '../../shared/keys.ts';
import type { Timings, TokenEvent, Usage } from '../../shared/token-event.ts';
import { DeathRecord } from '../death-record.ts';
import { EventLog } from '../event-log.ts';
import type { Recipient } from '../outbox.ts';

export interface EmbeddingJobOptions {
  job: Job;
  attempt: number;
  /** Epoch milliseconds. */
  clock(): number;
}

export class EmbeddingJob {
  readonly job: Job;
  readonly recipient: Recipient;
  readonly deaths: DeathRecord;
  readonly #clock: () => number;
  #texts: readonly (readonly number[])[] = [];
  #taken = 0;
  #told = 0;
  readonly #log: EventLog;
  #startedAt: number | undefined;
  #toldAt: number | undefined;

  constructor({ job, attempt, clock }: EmbeddingJobOptions) {
    this.job = job;
    this.recipient = { jobId: job.id, attempt, shard: job.shard, lifetimeMs: BULKY_LIFETIME_MS };
    this.deaths = new DeathRecord(attempt);
    this.#log = new EventLog(this.recipient);
    this.#clock = clock;
  }

  /** Before all else that asks about texts. */
  open(texts: readonly (readonly number[])[]): void {
    this.#texts = texts;
  }

  get isOver(): boolean {
    return this.#log.isOver;
  }

  /** How it ended, for the books: `stop`, or the code of its error. */
  get endReason(): string | undefined {
    return this.#log.endReason;
  }

  /** The tokens of the text that is to be taken next; undefined when all are. */
  get next(): readonly number[] | undefined {
    return this.isOver ? undefined : this.#texts[this.#taken];
  }

  /** Of the texts that are not yet taken. */
  get pendingTokens(): number {
    return this.isOver ? 0 : this.#texts.slice(this.#taken).reduce((sum, text) => sum + text.length, 0);
  }

  /** Takes over what an earlier attempt recorded. */
  resume(recorded: readonly TokenEvent[]): void {
    for (const event of recorded) {
      this.#log.follow(event);
      this.deaths.follow(event);
      if (event.type === 'embeddings') this.#taken = this.#told = event.first + event.vectors.length;
    }
  }

  accept(): void {
    this.#log.accept(this.usage.promptTokens);
    // An earlier attempt may have told everything but the end.
    this.#finishWhenTold();
  }

  /** It is about to run apart from other suspects. */
  tried(): void {
    this.#log.add({ type: 'tried' });
  }

  /** The next text goes into a run. */
  take(): void {
    this.#startedAt ??= this.#clock();
    this.#taken++;
  }

  /** The vectors of the texts that were taken in a run, in order, each in base64. */
  tell(vectors: readonly string[], dimensions: number): void {
    this.#log.add({ type: 'embeddings', first: this.#told, dimensions, vectors: [...vectors] });
    this.#told += vectors.length;
    this.#toldAt = this.#clock();
    this.#finishWhenTold();
  }

  fail(code: ErrorCode, message: string, param?: string): void {
    this.#log.fail(code, message, param);
  }

  takeEvents(): TokenEvent[] {
    return this.#log.take();
  }

  get usage(): Usage {
    return { promptTokens: this.#texts.reduce((sum, text) => sum + text.length, 0), completionTokens: 0, cachedTokens: 0 };
  }

  get timings(): Timings {
    const startedAt = this.#startedAt ?? this.#clock();
    const queueMs = Math.max(0, startedAt - this.job.submittedAt);
    const prefillMs = (this.#toldAt ?? startedAt) - startedAt;
    return { queueMs, prefillMs, ttftMs: queueMs + prefillMs, decodeTokensPerSecond: 0 };
  }

  #finishWhenTold(): void {
    if (this.#told < this.#texts.length) return;
    this.#log.end({ type: 'finish', usage: this.usage, timings: this.timings }, 'stop');
  }
}
