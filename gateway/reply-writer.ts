/** ReplyWriter: turns one job's events, given in order and once each, into the text of one HTTP body. */
import type { ApiError } from '../shared/errors.ts';
import type { AnswerEvent } from '../shared/token-event.ts';

export interface ReplyWriter {
  readonly contentType: string;
  /** Whether the body is worth sending before its end. */
  readonly isStreamed: boolean;
  /** What the event adds to the body; often nothing. The body is whole after `finish`. */
  write(event: AnswerEvent): string;
  /** Bytes that every client skips, to be sent between two writes. */
  heartbeat(note: string): string;
  /**
   * The error as the body's last words; undefined where this kind of body has no way to say it. With the sequence number of the event
   * that it stands for, when it is the job's own end and not only this reply's.
   */
  failure(error: ApiError, seq: number | undefined): string | undefined;
}
