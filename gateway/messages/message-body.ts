/** MessageBody: a message as one JSON object, written at its end; and the count of a conversation's tokens. */
import type { AnswerEvent } from '../../shared/token-event.ts';
import { JsonReply } from '../json-reply.ts';
import { GatheredBlocks, MessageBlocks } from './message-blocks.ts';
import { type MessageEnd, type MessageHead, messageEnd, messageOut } from './message-object.ts';

export class MessageBody extends JsonReply {
  readonly #head: MessageHead;
  readonly #blocks: MessageBlocks;
  readonly #gathered = new GatheredBlocks();
  #end: MessageEnd = messageEnd('stop', undefined);

  constructor(head: MessageHead) {
    super();
    this.#head = head;
    this.#blocks = new MessageBlocks(head.id);
  }

  write(event: AnswerEvent): string {
    if (event.type === 'finish') {
      return JSON.stringify(messageOut(this.#head, { content: this.#gathered.content, end: this.#end, usage: event.usage }));
    }
    if (event.type !== 'delta' || event.choice !== 0) return '';
    this.#gathered.take(this.#blocks.take(event));
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
