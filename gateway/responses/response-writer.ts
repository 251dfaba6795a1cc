/** ResponseWriter: a response whole, or as it stands now. */
import type { ApiError } from '../../shared/errors.ts';
import { type AnswerEvent, type FinishReason, isTerminal, type TokenEvent } from '../../shared/token-event.ts';
import { JsonReply } from '../json-reply.ts';
import { endStatus, failureStatus, type ResponseHead, type ResponseOut, type ResponseState, responseOut } from './response-object.ts';

export class ResponseWriter extends JsonReply {
  readonly #head: ResponseHead;
  readonly #progress = new ResponseProgress();

  constructor(head: ResponseHead) {
    super();
    this.#head = head;
  }

  write(event: AnswerEvent): string {
    this.#progress.take(event);
    return isTerminal(event) ? JSON.stringify(responseOut(this.#head, this.#progress.state)) : '';
  }

  override failure(error: ApiError): string {
    return JSON.stringify(responseOut(this.#head, { ...this.#progress.state, status: failureStatus(error), error }));
  }
}

/** What has come of an answer. */
export class ResponseProgress {
  #text: string | undefined;
  #finishReason: FinishReason | undefined;
  #state: Omit<ResponseState, 'text'> = { status: 'queued' };

  get state(): ResponseState {
    return { ...this.#state, text: this.#text };
  }

  get text(): string {
    return this.#text ?? '';
  }

  take(event: AnswerEvent): void {
    if (event.type === 'finish') {
      this.#text ??= '';
      this.#state = { status: endStatus(this.#finishReason), usage: event.usage };
      return;
    }
    this.#state = { status: 'in_progress' };
    if (event.type !== 'delta' || event.choice !== 0) return;
    if (event.text !== '') this.#text = this.text + event.text;
    this.#finishReason = event.finishReason ?? this.#finishReason;
  }

  /** It ends without an answer. */
  fail(error: Pick<ApiError, 'code' | 'message'>): void {
    this.#state = { status: failureStatus(error), error };
  }
}

/** The response as its events, from the first on, tell it. */
export function responseNow(head: ResponseHead, events: readonly TokenEvent[]): ResponseOut {
  const progress = new ResponseProgress();
  for (const event of events) {
    if (event.type === 'error') progress.fail({ code: event.code as ApiError['code'], message: event.message });
    else progress.take(event);
  }
  return responseOut(head, progress.state);
}
