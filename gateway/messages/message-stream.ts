/**
 * MessageStream: a message as server-sent events, event for event as Anthropic sends them: one `message_start`, block after block
 * from its start to its stop, one `message_delta` with the reason and the usage, and one `message_stop`; or an `error` in their place.
 *
 * `id:` is the sequence number of the event that the frames before it complete, as in every stream here.
 */
import type { ApiError } from '../../shared/errors.ts';
import type { AnswerEvent, DeltaEvent, FinishEvent } from '../../shared/token-event.ts';
import type { ReplyWriter } from '../reply-writer.ts';
import { commentLine, framesWithId } from '../sse-frame.ts';
import { type BlockStep, MessageBlocks } from './message-blocks.ts';
import { messageErrorBody } from './message-error.ts';
import { type MessageEnd, type MessageHead, messageEnd, messageOut, messageUsage, UNENDED } from './message-object.ts';

export class MessageStream implements ReplyWriter {
  readonly contentType = 'text/event-stream; charset=utf-8';
  readonly isStreamed = true;
  readonly #head: MessageHead;
  readonly #blocks: MessageBlocks;
  #promptTokens = 0;
  #hasBegun = false;
  #end: MessageEnd = messageEnd('stop', undefined);

  constructor(head: MessageHead) {
    this.#head = head;
    this.#blocks = new MessageBlocks(head.id);
  }

  write(event: AnswerEvent): string {
    switch (event.type) {
      case 'accepted':
        this.#promptTokens = event.promptTokens;
        return framesWithId(event.seq, this.#begin());
      case 'delta':
        return framesWithId(event.seq, this.#delta(event));
      case 'finish':
        return framesWithId(event.seq, this.#finish(event));
      default:
        return '';
    }
  }

  /** A comment in front tells the place in the queue. A `ping` before the message has begun would come unawares to some clients. */
  heartbeat(note: string): string {
    const ping = this.#hasBegun ? `${frame('ping', {})}\n\n` : '';
    return commentLine(note) + ping;
  }

  failure(error: ApiError, seq: number | undefined): string {
    const text = `event: error\ndata: ${JSON.stringify(messageErrorBody(error))}`;
    return seq === undefined ? `${text}\n\n` : framesWithId(seq, [text]);
  }

  #begin(): string[] {
    if (this.#hasBegun) return [];
    this.#hasBegun = true;
    // How much of the prompt came from the cache is known at the end, and told with the reason.
    const usage = { promptTokens: this.#promptTokens, cachedTokens: 0, completionTokens: 0 };
    return [frame('message_start', { message: messageOut(this.#head, { content: [], end: UNENDED, usage }) })];
  }

  #delta(event: DeltaEvent): string[] {
    if (event.choice !== 0) return [];
    if (event.finishReason !== undefined) this.#end = messageEnd(event.finishReason, event.stopText);
    const frames = this.#blocks.take(event).map(stepFrame);
    return frames.length === 0 ? [] : [...this.#begin(), ...frames];
  }

  #finish({ usage }: FinishEvent): string[] {
    return [
      ...this.#begin(),
      ...this.#blocks.end().map(stepFrame),
      frame('message_delta', {
        delta: { ...this.#end, stop_details: null, container: null },
        usage: messageUsage(this.#head, usage),
      }),
      frame('message_stop', {}),
    ];
  }
}

function stepFrame(step: BlockStep): string {
  const { index } = step;
  switch (step.kind) {
    case 'start':
      return frame('content_block_start', { index, content_block: step.block });
    case 'text':
      return frame('content_block_delta', { index, delta: { type: 'text_delta', text: step.text } });
    case 'thinking':
      return frame('content_block_delta', { index, delta: { type: 'thinking_delta', thinking: step.text } });
    case 'input':
      return frame('content_block_delta', { index, delta: { type: 'input_json_delta', partial_json: step.json } });
    case 'stop':
      return frame('content_block_stop', { index });
  }
}

function frame(type: string, fields: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}`;
}
