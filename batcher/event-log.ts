/**
 * EventLog: the events of one attempt at a job, numbered without a gap behind those of earlier attempts, until they are taken to be sent; after
 * the terminal one it takes no more.
 */
import type { ErrorCode } from '../shared/errors.ts';
import { isTerminal, type TokenEvent } from '../shared/token-event.ts';
import type { Recipient } from './outbox.ts';

/** An event before it has its number. */
export type EventBody = TokenEvent extends infer Each ? (Each extends TokenEvent ? Omit<Each, 'id' | 'attempt' | 'seq'> : never) : never;

export class EventLog {
  readonly #recipient: Recipient;
  #seq = 0;
  #isAccepted = false;
  #isOver = false;
  #endReason: string | undefined;
  #unsent: TokenEvent[] = [];

  constructor(recipient: Recipient) {
    this.#recipient = recipient;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** How this attempt ended it, for the books: a finish reason, or the code of its error. */
  get endReason(): string | undefined {
    return this.#endReason;
  }

  /** An event that an earlier attempt recorded. */
  follow(event: TokenEvent): void {
    this.#seq = event.seq + 1;
    this.#isAccepted ||= event.type === 'accepted';
    this.#isOver ||= isTerminal(event);
  }

  add(body: EventBody): void {
    if (this.#isOver) return;
    const head = { id: this.#recipient.jobId, attempt: this.#recipient.attempt, seq: this.#seq++ };
    this.#unsent.push({ ...head, ...body } as TokenEvent);
  }

  /** Unless an earlier attempt has said so. */
  accept(promptTokens: number): void {
    if (!this.#isAccepted) this.add({ type: 'accepted', promptTokens });
    this.#isAccepted = true;
  }

  /** With the terminal event. */
  end(body: EventBody, reason: string): void {
    if (this.#isOver) return;
    this.add(body);
    this.#endReason = reason;
    this.#isOver = true;
  }

  fail(code: ErrorCode, message: string, param?: string): void {
    this.end({ type: 'error', code, message, ...(param !== undefined && { param }) }, code);
  }

  /** Events since the last call. */
  take(): TokenEvent[] {
    const events = this.#unsent;
    this.#unsent = [];
    return events;
  }
}
