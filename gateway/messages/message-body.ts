/** MessageBody: a message as one JSON object, written at its end; and the count of a conversation's tokens. */
import type { AnswerEvent } from '../../shared/token-event.ts';
import { JsonReply } from '../json-reply.ts';
import { type MessageEnd, type MessageHead, messageEnd, messageOut } from './message-object.ts';

export class MessageBody extends JsonReply {
  readonly #head: MessageHead;
  #text = '';
  #end: MessageEnd = messageEnd('stop', undefined);

  constructor(head: MessageHead) {
    super();
    this.#head = head;
  }

  write(event: AnswerEvent): string {
    if (event.type === 'finish') return JSON.stringify(messageOut(this.#head, { text: this.#text, end: this.#end, usage: event.usage }));
    if (event.type !== 'delta' || event.choice !== 0) return '';
    this.#text += event.text;
    if (event.finishReason !== undefined) this.#end = messageEnd(event.finishReason, event.stopText);
    return '';
  }
}

export interface TokenCountOut {
  input_tokens: number;
}

export class TokenCountBody extends JsonReply {
  write(event: AnswerEvent): string {
    return event.type === 'tokens' ? JSON.stringify({ input_tokens: event.tokenIds.length } satisfies TokenCountOut) : '';
  }
}
