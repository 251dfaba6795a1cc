/** ChatScreen: what a chat writes: the answers on standard output and nothing else there; all about them on standard error. */
import type { AnswerEnd } from './chat-answer.ts';

/** Of standard output and standard error. */
export interface ChatStreams {
  out: NodeJS.WriteStream;
  err: NodeJS.WriteStream;
}

export class ChatScreen {
  readonly #streams: ChatStreams;
  #hasNote = false;
  #isReasoning = false;
  #lastCharacter = '\n';

  constructor(streams: ChatStreams) {
    this.#streams = streams;
  }

  piece(text: string): void {
    this.#clearNote();
    this.#endReasoning();
    this.#streams.out.write(printable(text));
    this.#lastCharacter = text.at(-1) ?? this.#lastCharacter;
  }

  /** In front of the answer, and no part of it; only where there is a terminal. */
  reasoning(text: string): void {
    if (!this.#streams.err.isTTY) return;
    this.#clearNote();
    this.#streams.err.write(dim(printable(text)));
    this.#isReasoning = true;
  }

  /** Something that is gone with the next piece; only where there is a terminal. */
  note(text: string): void {
    if (!this.#streams.err.isTTY || this.#isReasoning) return;
    this.#clearNote();
    this.#streams.err.write(dim(text));
    this.#hasNote = true;
  }

  /** The answer's own line is at its end. */
  endLine(): void {
    this.#clearNote();
    this.#endReasoning();
    if (this.#lastCharacter !== '\n') this.#streams.out.write('\n');
    this.#lastCharacter = '\n';
  }

  say(line: string): void {
    this.#clearNote();
    this.#streams.err.write(`${this.#streams.err.isTTY ? dim(line) : line}\n`);
  }

  error(message: string): void {
    this.endLine();
    this.#streams.err.write(`error: ${printable(message)}\n`);
  }

  #endReasoning(): void {
    if (!this.#isReasoning) return;
    this.#streams.err.write('\n\n');
    this.#isReasoning = false;
  }

  #clearNote(): void {
    if (!this.#hasNote) return;
    this.#streams.err.write('\r\x1b[K');
    this.#hasNote = false;
  }
}

/** `12 tokens, 31.2 tokens/s, first after 0.35 s`. */
export function figures({ completionTokens, tokensPerSecond, firstMs, finishReason }: AnswerEnd): string {
  const parts = [
    `${completionTokens} ${completionTokens === 1 ? 'token' : 'tokens'}`,
    ...(tokensPerSecond === undefined ? [] : [`${tokensPerSecond.toFixed(1)} tokens/s`]),
    `first after ${(firstMs / 1000).toFixed(2)} s`,
    ...(finishReason === 'length' ? ['cut off by the length limit'] : []),
  ];
  return parts.join(', ');
}

/** `queued position=3 eta_ms=900` in words. */
export function noteText(note: string): string {
  const [, position, eta] = /^queued position=(\d+)(?: eta_ms=(\d+))?/.exec(note) ?? [];
  if (position === undefined) return note === 'working' ? 'working …' : 'waiting …';
  return `place ${position} in the queue${eta === undefined ? '' : `, about ${Math.ceil(Number(eta) / 1000)} s`} …`;
}

/** An answer may hold anything: nothing in it may steer the terminal. */
function printable(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]/gu, '\ufffd');
}

function dim(text: string): string {
  return `\x1b[2m${text}\x1b[0m`;
}
