/**
 * ResponseStream: a response as server-sent events, event for event as OpenAI sends them, numbered from 0: the same numbers whenever the answer
 * is told again, so that a client can say after which one it wants to go on.
 */
import { type ApiError, errorBody } from '../../shared/errors.ts';
import type { AnswerEvent, TokenEvent } from '../../shared/token-event.ts';
import { asApiError } from '../relay.ts';
import type { ReplyWriter } from '../reply-writer.ts';
import { commentLine, framesWithId } from '../sse-frame.ts';
import { failureStatus, messageId, messageOut, type ResponseHead, type ResponseStatus, responseOut, textOut } from './response-object.ts';
import { ResponseProgress } from './response-writer.ts';

export class ResponseStream implements ReplyWriter {
  readonly contentType = 'text/event-stream; charset=utf-8';
  readonly isStreamed = true;
  readonly #head: ResponseHead;
  /** Number of the last event that its client has seen; -1 for none. */
  readonly #startingAfter: number;
  readonly #progress = new ResponseProgress();
  readonly #place: { item_id: string; output_index: 0; content_index: 0 };
  #number = 0;
  #hasBegun = false;

  constructor(head: ResponseHead, startingAfter = -1) {
    this.#head = head;
    this.#startingAfter = startingAfter;
    this.#place = { item_id: messageId(head.id), output_index: 0, content_index: 0 };
  }

  write(event: AnswerEvent): string {
    this.#progress.take(event);
    const frames = this.#begin();
    if (event.type === 'delta' && event.choice === 0 && event.text !== '') {
      frames.push(...this.#frame('response.output_text.delta', { ...this.#place, delta: event.text, logprobs: [] }));
    } else if (event.type === 'finish') {
      frames.push(...this.#end());
    }
    return framesWithId(event.seq, frames);
  }

  heartbeat(note: string): string {
    return commentLine(note);
  }

  failure(error: ApiError, seq: number | undefined): string {
    // Only this connection's: the response goes on.
    if (seq === undefined && error.code !== 'request_cancelled') {
      const { message, code, param } = errorBody(error).error;
      return framesOf(this.#frame('error', { code, message, param }));
    }
    this.#progress.fail(error);
    const frames = [...this.#begin(), ...this.#frame('response.failed', { response: this.#response(failureStatus(error)) })];
    return seq === undefined ? framesOf(frames) : framesWithId(seq, frames);
  }

  #begin(): string[] {
    if (this.#hasBegun) return [];
    this.#hasBegun = true;
    const { id, isBackground } = this.#head;
    const first = { status: isBackground ? ('queued' as const) : ('in_progress' as const), text: undefined };
    const created = responseOut(this.#head, first);
    return [
      ...this.#frame('response.created', { response: created }),
      ...(isBackground ? this.#frame('response.queued', { response: created }) : []),
      ...this.#frame('response.in_progress', { response: { ...created, status: 'in_progress' } }),
      ...this.#frame('response.output_item.added', { output_index: 0, item: messageOut(id, undefined, 'in_progress') }),
      ...this.#frame('response.content_part.added', { ...this.#place, part: textOut('') }),
    ];
  }

  #end(): string[] {
    const { text } = this.#progress;
    const { status } = this.#progress.state;
    const item = messageOut(this.#head.id, text, status === 'completed' ? 'completed' : 'incomplete');
    return [
      ...this.#frame('response.output_text.done', { ...this.#place, text, logprobs: [] }),
      ...this.#frame('response.content_part.done', { ...this.#place, part: textOut(text) }),
      ...this.#frame('response.output_item.done', { output_index: 0, item }),
      ...this.#frame(`response.${status}`, { response: this.#response(status) }),
    ];
  }

  #response(status: ResponseStatus) {
    return responseOut(this.#head, { ...this.#progress.state, status });
  }

  /** None for one that its client has seen. */
  #frame(type: string, fields: object): string[] {
    const number = this.#number++;
    if (number <= this.#startingAfter) return [];
    return [`event: ${type}\ndata: ${JSON.stringify({ type, ...fields, sequence_number: number })}`];
  }
}

/** Of a response that has failed: what came before, and why it did. */
export function failedStream(head: ResponseHead, startingAfter: number, events: readonly TokenEvent[]): Response {
  const writer = new ResponseStream(head, startingAfter);
  const text = events.map(event => (event.type === 'error' ? writer.failure(asApiError(event), event.seq) : writer.write(event))).join('');
  return new Response(text, { headers: { 'content-type': writer.contentType } });
}

function framesOf(frames: readonly string[]): string {
  return frames.map(frame => `${frame}\n\n`).join('');
}
