/**
 * Relay: one job's way from its events to one HTTP reply. Each event is told once and in order, whatever comes twice, late or from an
 * attempt that was fenced off; the reply ends exactly once, by the job's terminal event, a failure, or its client leaving.
 *
 *   waiting ──first event──▶ running ──terminal event, fail(), client gone──▶ over
 *
 * The reply's head goes out as soon as nothing can turn it into an error any more: at once for a stream that is sure to fit the
 * context, with the first event for another; a whole body's with its end, or with the first heartbeat.
 */
import { ApiError, isErrorCode } from '../shared/errors.ts';
import { isTerminal, type TokenEvent } from '../shared/token-event.ts';
import type { ReplyWriter } from './reply-writer.ts';

export interface RelayOptions {
  writer: ReplyWriter;
  /** No batcher can find the prompt too long. */
  isSureToFit: boolean;
  maxBufferedBytes: number;
  /** Called once, when the client will take no more before the end. */
  onAbandoned(why: 'left' | 'slow'): void;
  now: number;
}

/** `ask`: the job's record knows what is to be told now. */
export type Verdict = 'taken' | 'dropped' | 'ask';

/**
 * After this much silence the attempt that goes on may have been fenced off meanwhile, which only the record tells.
 * Shorter than the lock of a job, which must run out before another attempt begins.
 */
const TRUST_MS = 1_000;

const encoder = new TextEncoder();

export class Relay {
  readonly response: Promise<Response>;
  readonly #options: RelayOptions;
  #resolve!: (response: Response) => void;
  #reject!: (error: ApiError) => void;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #pending = '';
  #phase: 'waiting' | 'running' | 'over' = 'waiting';
  #isQueued = false;
  #attempt = 0;
  #nextSeq = 0;
  #heardAt: number;
  #sentAt: number;

  constructor(options: RelayOptions) {
    this.#options = options;
    this.#heardAt = options.now;
    this.#sentAt = options.now;
    this.response = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // It may fail before anyone waits for it.
    this.response.catch(() => undefined);
  }

  get phase(): 'waiting' | 'running' | 'over' {
    return this.#phase;
  }

  /** The sequence number of the event that is wanted next. */
  get nextSeq(): number {
    return this.#nextSeq;
  }

  /** Milliseconds since the last event, or since the start. */
  silenceMs(now: number): number {
    return now - this.#heardAt;
  }

  /** Milliseconds since anything was sent, or since the start. */
  idleMs(now: number): number {
    return now - this.#sentAt;
  }

  /** The job is on the queue: from here on it will be worked on. */
  queued(now: number): void {
    this.#isQueued = true;
    if (this.#options.writer.isStreamed && this.#options.isSureToFit) this.#pending += this.#options.writer.heartbeat('queued');
    this.flush(now);
  }

  /** An event as it was seen live. What it adds is sent by flush. */
  hear(event: TokenEvent, now: number): Verdict {
    if (this.#phase === 'over' || event.attempt < this.#attempt || event.seq < this.#nextSeq) return 'dropped';
    const isSameAttempt = event.attempt === this.#attempt;
    if (event.seq > this.#nextSeq || (isSameAttempt && this.silenceMs(now) > TRUST_MS)) return 'ask';
    this.#take(event, now);
    return 'taken';
  }

  /** Events from the job's record, which is fenced: what is there is true. Throws nothing; a hole in it ends the reply. */
  learn(events: readonly TokenEvent[], now: number): void {
    for (const event of events) {
      if (this.#phase === 'over') return;
      if (event.seq < this.#nextSeq) continue;
      if (event.seq > this.#nextSeq) {
        this.fail(new ApiError('generation_failed', 'A part of the answer was lost.'), now);
        return;
      }
      this.#take(event, now);
    }
  }

  /** Sends what has gathered, in one piece. */
  flush(now: number): void {
    if (this.#controller === undefined && this.#phase !== 'over' && this.#isOpenable()) this.#open();
    if (this.#controller === undefined || this.#pending === '') return;
    this.#controller.enqueue(encoder.encode(this.#pending));
    this.#pending = '';
    this.#sentAt = now;
    if (this.#phase !== 'over' && (this.#controller.desiredSize ?? 0) < -this.#options.maxBufferedBytes) {
      this.fail(new ApiError('rate_limit_exceeded', 'The reply was read too slowly and is cut off.'), now);
      this.#options.onAbandoned('slow');
    }
  }

  /** Something for a connection that is otherwise silent; by it a client that left is noticed. */
  beat(note: string, now: number): void {
    this.#sentAt = now;
    if (this.#phase === 'over' || !this.#isQueued || !this.#mayNotFail()) return;
    this.#pending += this.#options.writer.heartbeat(note);
    if (this.#controller === undefined) this.#open();
    this.flush(now);
  }

  /** Ends the reply with an error, as a status where none has been sent yet. */
  fail(error: ApiError, now: number): void {
    if (this.#phase === 'over') return;
    this.#phase = 'over';
    if (this.#controller === undefined) {
      this.#reject(error);
      return;
    }
    const words = this.#options.writer.failure(error);
    if (words === undefined) {
      this.#controller.error(error);
      return;
    }
    this.#pending += words;
    this.flush(now);
    this.#controller.close();
  }

  /** The client has gone. */
  abandon(): void {
    if (this.#phase === 'over') return;
    this.#phase = 'over';
    this.#reject(new ApiError('request_cancelled', 'The client has closed the connection.'));
    this.#options.onAbandoned('left');
  }

  #take(event: TokenEvent, now: number): void {
    this.#attempt = event.attempt;
    this.#nextSeq = event.seq + 1;
    this.#heardAt = now;
    if (this.#phase === 'waiting') this.#phase = 'running';
    if (event.type === 'error') {
      const code = isErrorCode(event.code) ? event.code : 'generation_failed';
      this.fail(new ApiError(code, event.message, event.param === undefined ? {} : { param: event.param }), now);
      return;
    }
    this.#pending += this.#options.writer.write(event);
    if (isTerminal(event)) this.#finish(now);
  }

  #finish(now: number): void {
    this.#phase = 'over';
    if (this.#controller === undefined && !this.#options.writer.isStreamed) {
      this.#resolve(new Response(this.#pending, { headers: this.#headers() }));
      this.#pending = '';
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
    return this.#isQueued && this.#options.writer.isStreamed && this.#mayNotFail();
  }

  #open(): void {
    const body = new ReadableStream<Uint8Array>(
      {
        start: controller => {
          this.#controller = controller;
        },
        cancel: () => this.abandon(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: 0 }),
    );
    this.#resolve(new Response(body, { headers: this.#headers() }));
  }

  #headers(): Record<string, string> {
    const { writer } = this.#options;
    if (!writer.isStreamed) return { 'content-type': writer.contentType };
    // Proxies are asked to pass each piece on as it comes.
    return { 'content-type': writer.contentType, 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' };
  }
}
