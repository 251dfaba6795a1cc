/** ResponseWriter: a response whole, or as it stands now. */
import type { ApiError } from '../../shared/errors.ts';
import { type AnswerEvent, type FinishReason, isTerminal, type TokenEvent } from '../../shared/token-event.ts';
import { JsonReply } from '../json-reply.ts';
import {
  endStatus,
  failureStatus,
  lastStatus,
  type ResponseHead,
  type ResponseOut,
  type ResponseState,
  responseOut,
} from './response-object.ts';
import { type OutputItem, type OutputStep, ResponseOutput } from './response-output.ts';

export class ResponseWriter extends JsonReply {
  readonly #head: ResponseHead;
  readonly #progress: ResponseProgress;

  constructor(head: ResponseHead) {
    super();
    this.#head = head;
    this.#progress = new ResponseProgress(head.id);
  }

  write(event: AnswerEvent): string {
    this.#progress.take(event);
    return isTerminal(event) ? JSON.stringify(responseOut(this.#head, this.#progress.state)) : '';
  }

  override failure(error: ApiError): string {
    this.#progress.fail(error);
    return JSON.stringify(responseOut(this.#head, this.#progress.state));
  }
}

/** What has come of an answer. */
export class ResponseProgress {
  readonly #output: ResponseOutput;
  #finishReason: FinishReason | undefined;
  #state: Omit<ResponseState, 'output'> = { status: 'queued' };

  constructor(responseId: string) {
    this.#output = new ResponseOutput(responseId);
  }

  get state(): ResponseState {
    return { ...this.#state, output: this.#output.out(lastStatus(this.#state.status)) };
  }

  get items(): OutputItem[] {
    return this.#output.items;
  }

  /** Steps that its output makes by it. */
  take(event: AnswerEvent): OutputStep[] {
    if (event.type === 'finish') {
      this.#state = { status: endStatus(this.#finishReason), usage: event.usage };
      return this.#output.end();
    }
    this.#state = { status: 'in_progress' };
    if (event.type !== 'delta' || event.choice !== 0) return [];
    this.#finishReason = event.finishReason ?? this.#finishReason;
    return this.#output.take(event);
  }

  /** It ends without an answer. */
  fail(error: Pick<ApiError, 'code' | 'message'>): void {
    this.#state = { status: failureStatus(error), error };
  }
}

/** The response as its events, from the first on, tell it. */
export function responseNow(head: ResponseHead, events: readonly TokenEvent[]): ResponseOut {
  return responseOut(head, progressOf(head.id, events).state);
}

/** What it says and calls. */
export function answerOf(responseId: string, events: readonly TokenEvent[]): OutputItem[] {
  return progressOf(responseId, events).items;
}

function progressOf(responseId: string, events: readonly TokenEvent[]): ResponseProgress {
  const progress = new ResponseProgress(responseId);
  for (const event of events) {
    if (event.type === 'error') progress.fail({ code: event.code as ApiError['code'], message: event.message });
    else progress.take(event);
  }
  return progress;
}
