/** ChatLines: what is typed, line by line, as one chat sees it: messages, also of several lines, and commands. */

export type ChatLine =
  | { kind: 'message'; text: string }
  | { kind: 'command'; name: string; argument: string }
  /** A message of several lines that is not at its end. */
  | { kind: 'open' };

const FENCE = '"""';

export class ChatLines {
  #open: string[] | undefined;

  /** In the middle of a message. */
  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** Undefined for a line that says nothing. */
  take(line: string): ChatLine | undefined {
    if (this.#open !== undefined) return this.#goOn(line);
    const text = line.trim();
    if (text.startsWith(FENCE)) {
      this.#open = [];
      return this.#goOn(text.slice(FENCE.length));
    }
    if (text === '') return undefined;
    if (!text.startsWith('/')) return { kind: 'message', text: line };
    const [, name, argument] = /^\/(\S*)\s*(.*)$/s.exec(text)!;
    return { kind: 'command', name: name!, argument: argument! };
  }

  /** The message under way is not sent. */
  drop(): void {
    this.#open = undefined;
  }

  #goOn(line: string): ChatLine | undefined {
    const end = line.indexOf(FENCE);
    this.#open!.push(end === -1 ? line : line.slice(0, end));
    if (end === -1) return { kind: 'open' };
    const text = this.#open!.join('\n').trim();
    this.#open = undefined;
    return text === '' ? undefined : { kind: 'message', text };
  }
}
