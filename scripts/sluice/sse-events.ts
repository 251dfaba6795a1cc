/**
 * SseEvents: server-sent events out of a byte stream, as the WHATWG standard parses them (fields data, id and event; comments go to
 * whoever wants them). A character or line that is cut by a chunk's edge is whole in the event.
 */

export interface SseEvent {
  data: string;
  id: string | undefined;
  event: string | undefined;
}

export class SseParser {
  readonly #decoder = new TextDecoder('utf-8', { fatal: true });
  #rest = '';
  #data: string[] = [];
  #id: string | undefined;
  #event: string | undefined;
  readonly #onComment: ((text: string) => void) | undefined;
  commentCount = 0;

  constructor(onComment?: (text: string) => void) {
    this.#onComment = onComment;
  }

  /** The events that `bytes` completes. Throws on bytes that are not UTF-8. */
  push(bytes: Uint8Array): SseEvent[] {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const events: SseEvent[] = [];
    // A carriage return at the very end may be half of a line end, so it waits.
    for (let match = LINE.exec(this.#rest); match; match = LINE.exec(this.#rest)) {
      this.#rest = this.#rest.slice(match[0].length);
      const event = this.#line(match[1]!);
      if (event) events.push(event);
    }
    return events;
  }

  /** Text after the last blank line: a stream that ended in the middle of an event. */
  get remainder(): string {
    return this.#rest + this.#data.join('\n');
  }

  #line(line: string): SseEvent | undefined {
    if (line === '') {
      if (this.#data.length === 0) return undefined;
      const event = { data: this.#data.join('\n'), id: this.#id, event: this.#event };
      this.#data = [];
      this.#event = undefined;
      return event;
    }
    const colon = line.indexOf(':');
    if (colon === 0) {
      this.commentCount++;
      this.#onComment?.(line.slice(1).trim());
      return undefined;
    }
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1));
    if (field === 'data') this.#data.push(value);
    else if (field === 'id') this.#id = value;
    else if (field === 'event') this.#event = value;
    return undefined;
  }
}

const LINE = /^([^\r\n]*)(?:\r\n|\n|\r(?=[^\n]))/;
