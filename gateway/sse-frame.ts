/** SseFrame: the text of server-sent events, in the form that every client of OpenAI's API reads. */
import { type ApiError, errorBody } from '../shared/errors.ts';

export const DONE_FRAME = 'data: [DONE]\n\n';

/** Frames of one event, `data:` lines without their ends. The id stands on the last: one that got lost half-way is sent again whole. */
export function framesWithId(seq: number, frames: readonly string[]): string {
  if (frames.length === 0) return '';
  const last = frames.length - 1;
  return oneLineEach(frames.map((frame, index) => (index === last ? `id: ${seq}\n${frame}\n\n` : `${frame}\n\n`)).join(''));
}

/**
 * Ends of lines in Unicode that are none in server-sent events, and that JSON leaves as they are: clients that split text by their language's own
 * notion of a line, as httpx's iter_lines does, would tear an event apart at them. They stand in strings only, so JSON's own escape is the same text.
 */
const UNICODE_LINE_END = /[\u0085\u2028\u2029]/g;

function oneLineEach(frames: string): string {
  return frames.replace(UNICODE_LINE_END, end => `\\u${end.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/**
 * A comment line, and no blank line after it: the next event's own lines end it. A blank line would end an event, and
 * openai-python dispatches one for each blank line once it has seen an `id:`, since it keeps the last id, and then fails on
 * its empty data. Line by line a comment is skipped by openai-python, openai-node, eventsource-parser and EventSource alike.
 */
export function commentLine(note: string): string {
  return `: ${note}\n`;
}

/** With an id where the job itself ended so: who has seen it need not come back. */
export function errorFrame(error: ApiError, seq: number | undefined): string {
  const frame = oneLineEach(`data: ${JSON.stringify(errorBody(error))}\n\n`);
  return seq === undefined ? frame : `id: ${seq}\n${frame}`;
}
