/**
 * EventOrder: one job's events, each once and in order, whatever comes twice, late or from an attempt that was fenced off. What it lets
 * through is what the job's record holds.
 *
 *   waiting ──first event──▶ running ──terminal event, end()──▶ over
 */
import { isTerminal, type TokenEvent } from '../shared/token-event.ts';

export type Phase = 'waiting' | 'running' | 'over';

/** `next`: it is the one that was missing. `ask`: the job's record knows what is to be told now. */
export type Verdict = 'next' | 'dropped' | 'ask';

/**
 * After this much silence the attempt that goes on may have been fenced off meanwhile, which only the record tells.
 * Shorter than the lock of a job, which must run out before another attempt begins.
 */
const TRUST_MS = 1_000;

export class EventOrder {
  #phase: Phase = 'waiting';
  #attempt = 0;
  #nextSeq = 0;
  #heardAt: number;
  #isAnswered = false;

  constructor(now: number) {
    this.#heardAt = now;
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** The sequence number of the event that is wanted next. */
  get nextSeq(): number {
    return this.#nextSeq;
  }

  /** Which take of the job its last event was of; 0 before the first. */
  get attempt(): number {
    return this.#attempt;
  }

  /** It has ended well. */
  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** Milliseconds since the last event, or since the start. */
  silenceMs(now: number): number {
    return now - this.#heardAt;
  }

  /** An event as it was seen live. */
  hear(event: TokenEvent, now: number): Verdict {
    if (this.#phase === 'over' || event.attempt < this.#attempt || event.seq < this.#nextSeq) return 'dropped';
    const isSameAttempt = event.attempt === this.#attempt;
    if (event.seq > this.#nextSeq || (isSameAttempt && this.silenceMs(now) > TRUST_MS)) return 'ask';
    this.#take(event, now);
    return 'next';
  }

  /** A later attempt tells what has been told: it found a record without its end, which Redis has lost. */
  isRewind(event: TokenEvent): boolean {
    return event.attempt > this.#attempt && event.seq < this.#nextSeq;
  }

  /** Events of the record, which is fenced: those that are new here, or `hole` when one is missing among them. */
  learn(events: readonly TokenEvent[], now: number): TokenEvent[] | 'hole' {
    const news: TokenEvent[] = [];
    for (const event of events) {
      if (this.#phase === 'over') break;
      if (event.seq < this.#nextSeq) continue;
      if (event.seq > this.#nextSeq) return 'hole';
      this.#take(event, now);
      news.push(event);
    }
    return news;
  }

  /** Nothing more is listened to. */
  end(): void {
    this.#phase = 'over';
  }

  #take(event: TokenEvent, now: number): void {
    this.#attempt = event.attempt;
    this.#nextSeq = event.seq + 1;
    this.#heardAt = now;
    this.#phase = isTerminal(event) ? 'over' : 'running';
    this.#isAnswered = event.type === 'finish';
  }
}
