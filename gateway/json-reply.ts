/** JsonReply: what is alike in all replies that are one JSON object, sent when the last of it is known. */
import type { ApiError } from '../shared/errors.ts';
import type { AnswerEvent } from '../shared/token-event.ts';
import type { ReplyWriter } from './reply-writer.ts';

export abstract class JsonReply implements ReplyWriter {
  readonly contentType = 'application/json';
  readonly isStreamed = false;

  abstract write(event: AnswerEvent): string;

  /** JSON may begin with any amount of white space. */
  heartbeat(): string {
    return '\n';
  }

  /** A body whose status said 200 cannot turn into an error: it is cut off instead, which no client takes for an answer. */
  failure(_error: ApiError): string | undefined {
    return undefined;
  }
}
