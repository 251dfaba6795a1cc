/**
 * Relay: one client's way from a job's events, given in order, to one HTTP reply. The reply ends exactly once, by the job's terminal
 * event, a failure, or its client leaving; a client that was here before gets what comes after the last event that it has seen.
 *
 *   waiting ──first event──▶ running ──terminal event, fail(), client gone──▶ over
 *
 * The reply's head goes out as soon as nothing can turn it into an error any more: at once for a stream that is sure to fit the
 * context, with the first event for another; a whole body's with its end, or with the first heartbeat.
 */
import { ApiError, isErrorCode } from '../shared/errors.ts';
import { isTerminal, type TokenEvent } from '../shared/token-event.ts';
import type { Phase } from './event-order.ts';
import type { ReplyWriter } from './reply-writer.ts';

export interface RelayOptions {
  writer: ReplyWriter;
  /** No batcher can refuse the prompt. */
  isSureToFit: boolean;
  maxBufferedBytes: number;
  /** Further headers of the reply. */
  headers?: Readonly<Record<string, string>>;
  /** Lines ahead of everything in a stream. */
  preamble?: string;
  /** Sequence number of the last event that the client has seen; -1 for none. */
  seenSeq?: number;
  /** Called once, when the client will take no more before the end. */
  onGone(why: Departure): void;
  now: number;
}

export type Departure = 'left' | 'slow' | 'replaced';

const encoder = new TextEncoder();
/** One for all: in this runtime each costs more than a stream without one. */
const BY_LENGTH: QueuingStrategy<Uint8Array> = { highWaterMark: 0, size: piece => piece.byteLength };

export class Relay {
  readonly response: Promise<Response>;
  readonly #options: RelayOptions;
  readonly #seenSeq: number;
  #resolve!: (response: Response) => void;
  #reject!: (error: ApiError) => void;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #pending = '';
  #phase: Phase = 'waiting';
  #isBegun = false;
  #hasSpoken = false;
  #nextSeq = 0;
  #sentAt: number;

  constructor(options: RelayOptions) {
    this.#options = options;
    this.#seenSeq = options.seenSeq ?? -1;
    this.#sentAt = options.now;
    this.response = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // It may fail before anyone waits for it.
    this.response.catch(() => undefined);
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** The sequence number of the event that is wanted next. */
  get nextSeq(): number {
    return this.#nextSeq;
  }

  /** Milliseconds since anything was sent, or since the start. */
  idleMs(now: number): number {
    return now - this.#sentAt;
  }

  /** What the client has not yet taken. */
  get bufferedBytes(): number {
    return this.#phase === 'over' ? 0 : Math.max(0, -(this.#controller?.desiredSize ?? 0));
  }

  /** A stream of which nothing but the head has been sent. */
  get isHushed(): boolean {
    return this.#options.writer.isStreamed && !this.#hasSpoken;
  }

  /** The job is on the queue: from here on it will be worked on, and the head goes out as soon as it may; behind it the note, if any. */
  begin(now: number, note?: string): void {
    this.#isBegun = true;
    if (this.#phase === 'over') return;
    const { writer } = this.#options;
    if (note !== undefined && writer.isStreamed && this.#mayNotFail()) this.#pending = writer.heartbeat(note) + this.#pending;
    this.flush(now);
  }

  /** The next event. What it adds is sent by flush; one that was taken before adds nothing. */
  take(event: TokenEvent, now: number): void {
    if (this.#phase === 'over' || event.seq < this.#nextSeq) return;
    this.#nextSeq = event.seq + 1;
    this.#phase = 'running';
    const isSeen = event.seq <= this.#seenSeq;
    if (event.type === 'error') {
      if (isSeen) this.#finish(now);
      else this.#fail(asApiError(event), now, event.seq);
      return;
    }
    // Also of what the client has seen: the writer must know what was said.
    const words = this.#options.writer.write(event);
    if (!isSeen || !this.#options.writer.isStreamed) this.#pending += words;
    if (isTerminal(event)) this.#finish(now);
  }

  /** Sends what has gathered, in one piece. */
  flush(now: number): void {
    if (this.#controller === undefined && this.#phase !== 'over' && this.#isOpenable()) this.#open();
    if (this.#controller === undefined || this.#pending === '') return;
    this.#controller.enqueue(encoder.encode(this.#pending));
    this.#pending = '';
    this.#hasSpoken = true;
    this.#sentAt = now;
    if (this.#phase !== 'over' && this.bufferedBytes > this.#options.maxBufferedBytes) this.cutOff('slow', now);
  }

  /** Something for a connection that is otherwise silent; by it a client that left is noticed. */
  beat(note: string, now: number): void {
    this.#sentAt = now;
    if (this.#phase === 'over' || !this.#isBegun || !this.#mayNotFail()) return;
    this.#pending += this.#options.writer.heartbeat(note);
    if (this.#controller === undefined) this.#open();
    this.flush(now);
  }

  /** Ends the reply with an error, as a status where none has been sent yet. */
  fail(error: ApiError, now: number): void {
    this.#fail(error, now, undefined);
  }

  /** The client has gone. */
  abandon(): void {
    if (this.#phase === 'over') return;
    this.#phase = 'over';
    this.#reject(new ApiError('request_cancelled', 'The client has closed the connection.'));
    this.#options.onGone('left');
  }

  /** The client has to go; it may come back for the rest. */
  cutOff(why: 'slow' | 'replaced', now: number): void {
    if (this.#phase === 'over') return;
    const message =
      why === 'slow' ? 'The reply was read too slowly and is cut off.' : 'Too many connections read this reply; the oldest is closed.';
    this.fail(new ApiError('rate_limit_exceeded', message), now);
    this.#options.onGone(why);
  }

  #fail(error: ApiError, now: number, seq: number | undefined): void {
    if (this.#phase === 'over') return;
    this.#phase = 'over';
    const { writer } = this.#options;
    // Text that has gathered is worth more than a status.
    if (this.#controller === undefined && writer.isStreamed && this.#pending !== '') this.#open();
    if (this.#controller === undefined) {
      this.#reject(error);
      return;
    }
    const words = writer.failure(error, seq);
    if (words === undefined) {
      this.#controller.error(error);
      return;
    }
    this.#pending += words;
    this.flush(now);
    this.#controller.close();
  }

  #finish(now: number): void {
    this.#phase = 'over';
    if (this.#controller === undefined && !this.#options.writer.isStreamed) {
      this.#resolve(new Response(this.#pending, { headers: this.#headers() }));
      this.#pending = '';
      return;
    }
    if (this.#controller === undefined && this.#seenSeq >= this.#nextSeq - 1) {
      // It has seen everything. EventSource would come back for ever, but for this status.
      this.#resolve(new Response(null, { status: 204, headers: { ...this.#options.headers } }));
      return;
    }
    if (this.#controller === undefined) this.#open();
    this.flush(now);
    this.#controller!.close();
  }

  /** A status of 200 is right, whatever comes. */
  #mayNotFail(): boolean {
    return this.#options.isSureToFit || this.#phase === 'running';
  }

  #isOpenable(): boolean {
    return this.#isBegun && this.#options.writer.isStreamed && this.#mayNotFail();
  }

  #open(): void {
    const body = new ReadableStream<Uint8Array>(
      {
        start: controller => {
          this.#controller = controller;
        },
        cancel: () => this.abandon(),
      },
      BY_LENGTH,
    );
    this.#pending = (this.#options.preamble ?? '') + this.#pending;
    this.#resolve(new Response(body, { headers: this.#headers() }));
  }

  #headers(): Record<string, string> {
    const { writer, headers } = this.#options;
    const all = { 'content-type': writer.contentType, ...headers };
    // Proxies are asked to pass each piece on as it comes.
    return writer.isStreamed ? { ...all, 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' } : all;
  }
}

export function asApiError(event: Extract<TokenEvent, { type: 'error' }>): ApiError {
  const code = isErrorCode(event.code) ? event.code : 'generation_failed';
  return new ApiError(code, event.message, event.param === undefined ? {} : { param: event.param });
}
