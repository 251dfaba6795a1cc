/**
 * ResponseStream: a response as server-sent events, event for event as OpenAI sends them, numbered from 0: the same numbers whenever the answer
 * is told again, so that a client can say after which one it wants to go on.
 */
import { type ApiError, errorBody } from '../../shared/errors.ts';
import type { AnswerEvent, TokenEvent } from '../../shared/token-event.ts';
import { asApiError } from '../relay.ts';
import type { ReplyWriter } from '../reply-writer.ts';
import { commentLine, framesWithId } from '../sse-frame.ts';
import { lastStatus, type ResponseHead, responseOut } from './response-object.ts';
import { type ItemStatus, itemOut, type OutputItem, type OutputStep, reasoningTextOut, textOut } from './response-output.ts';
import { ResponseProgress } from './response-writer.ts';

export class ResponseStream implements ReplyWriter {
  readonly contentType = 'text/event-stream; charset=utf-8';
  readonly isStreamed = true;
  readonly #head: ResponseHead;
  /** Number of the last event that its client has seen; -1 for none. */
  readonly #startingAfter: number;
  readonly #progress: ResponseProgress;
  #number = 0;
  #hasBegun = false;

  constructor(head: ResponseHead, startingAfter = -1) {
    this.#head = head;
    this.#startingAfter = startingAfter;
    this.#progress = new ResponseProgress(head.id);
  }

  write(event: AnswerEvent): string {
    const steps = this.#progress.take(event);
    const frames = [...this.#begin(), ...steps.flatMap((step, at) => this.#step(step, event.type === 'finish' && at === steps.length - 1))];
    if (event.type === 'finish') frames.push(...this.#frame(`response.${this.#progress.state.status}`, { response: this.#response() }));
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
    const frames = [...this.#begin(), ...this.#frame('response.failed', { response: this.#response() })];
    return seq === undefined ? framesOf(frames) : framesWithId(seq, frames);
  }

  #begin(): string[] {
    if (this.#hasBegun) return [];
    this.#hasBegun = true;
    const first = { status: this.#head.isBackground ? ('queued' as const) : ('in_progress' as const), output: [] };
    const created = responseOut(this.#head, first);
    return [
      ...this.#frame('response.created', { response: created }),
      ...(this.#head.isBackground ? this.#frame('response.queued', { response: created }) : []),
      ...this.#frame('response.in_progress', { response: { ...created, status: 'in_progress' } }),
    ];
  }

  /** `isLast`: of the response. */
  #step(step: OutputStep, isLast: boolean): string[] {
    const { index: output_index, item } = step;
    const place = { item_id: item.id, output_index };
    switch (step.kind) {
      case 'added': {
        const empty = itemOut(item, 'in_progress');
        if (empty.type === 'function_call') return this.#frame('response.output_item.added', { output_index, item: empty });
        return [
          ...this.#frame('response.output_item.added', { output_index, item: { ...empty, content: [] } }),
          ...this.#frame('response.content_part.added', { ...place, content_index: 0, part: partOut({ ...item, text: '' }) }),
        ];
      }
      case 'grown':
        if (item.type === 'function_call') return this.#frame('response.function_call_arguments.delta', { ...place, delta: step.piece });
        return this.#frame(`response.${partOut(item).type}.delta`, { ...place, content_index: 0, delta: step.piece, ...logprobsOf(item) });
      case 'done':
        // Only what comes last can have been cut.
        return this.#done(item, output_index, isLast ? lastStatus(this.#progress.state.status) : 'completed');
    }
  }

  #done(item: OutputItem, output_index: number, status: ItemStatus): string[] {
    const place = { item_id: item.id, output_index };
    const frame = this.#frame.bind(this);
    if (item.type === 'function_call') {
      return [
        ...frame('response.function_call_arguments.done', { ...place, name: item.name, arguments: item.text }),
        ...frame('response.output_item.done', { output_index, item: itemOut(item, status) }),
      ];
    }
    return [
      ...frame(`response.${partOut(item).type}.done`, { ...place, content_index: 0, text: item.text, ...logprobsOf(item) }),
      ...frame('response.content_part.done', { ...place, content_index: 0, part: partOut(item) }),
      ...frame('response.output_item.done', { output_index, item: itemOut(item, status) }),
    ];
  }

  #response() {
    return responseOut(this.#head, this.#progress.state);
  }

  /** None for one that its client has seen. */
  #frame(type: string, fields: object): string[] {
    const number = this.#number++;
    if (number <= this.#startingAfter) return [];
    return [`event: ${type}\ndata: ${JSON.stringify({ type, ...fields, sequence_number: number })}`];
  }
}

/** The one part that a message or a reasoning has; its type names the events of its text too. */
function partOut({ type, text }: OutputItem) {
  return type === 'reasoning' ? reasoningTextOut(text) : textOut(text);
}

function logprobsOf({ type }: OutputItem): { logprobs?: never[] } {
  return type === 'reasoning' ? {} : { logprobs: [] };
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
