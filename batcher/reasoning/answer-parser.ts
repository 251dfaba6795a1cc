/** AnswerParser: tells what an answer is made of, as its text comes: first its reasoning, then text and calls of functions, as far as it may have them. */
import { type CallDelta, joinedCalls } from '../../shared/token-event.ts';
import { CallParser, type CallParserOptions } from '../tools/call-parser.ts';
import { ReasoningParser } from './reasoning-parser.ts';
import type { Reasoning } from './reasoning-syntax.ts';

export interface AnswerParserOptions {
  reasoning?: Reasoning | undefined;
  calls?: CallParserOptions | undefined;
}

export interface ParsedAnswer {
  reasoning: string;
  text: string;
  calls: CallDelta[];
}

/** Undefined for an answer that is text alone. */
export function answerParserOf(options: AnswerParserOptions): AnswerParser | undefined {
  return options.reasoning === undefined && options.calls === undefined ? undefined : new AnswerParser(options);
}

export class AnswerParser {
  readonly #reasoning: ReasoningParser | undefined;
  readonly #calls: CallParser | undefined;

  constructor({ reasoning, calls }: AnswerParserOptions) {
    this.#reasoning = reasoning && new ReasoningParser(reasoning);
    this.#calls = calls && new CallParser(calls);
  }

  /** It may have reasoning, or had some. */
  get mayReason(): boolean {
    return this.#reasoning !== undefined;
  }

  get isReasoning(): boolean {
    return this.#reasoning?.isReasoning ?? false;
  }

  /** Calls that were told, at least their beginning. */
  get callCount(): number {
    return this.#calls?.callCount ?? 0;
  }

  /** What comes is no text: reasoning, or what is a call or looks like one so far. */
  get isApart(): boolean {
    return this.#reasoning?.isApart || (this.#calls?.isInCall ?? false);
  }

  /** The last character pushed is text, though what came before it was not. */
  get isTextAgain(): boolean {
    return this.#reasoning?.isTextAgain ?? false;
  }

  /** Characters at the end with which something else than text may be about to begin. */
  get openingLength(): number {
    return this.#reasoning?.openingLength || (this.#calls?.openingLength ?? 0);
  }

  push(text: string): ParsedAnswer {
    const { reasoning, text: rest } = this.#reasoning?.push(text) ?? { reasoning: '', text };
    return { reasoning, ...(this.#calls?.push(rest) ?? { text: rest, calls: [] }) };
  }

  /** No more text comes. */
  end(): ParsedAnswer {
    const { reasoning, text: rest } = this.#reasoning?.end() ?? { reasoning: '', text: '' };
    if (this.#calls === undefined) return { reasoning, text: rest, calls: [] };
    const pushed = this.#calls.push(rest);
    const ended = this.#calls.end();
    return { reasoning, text: pushed.text + ended.text, calls: joinedCalls(pushed.calls, ended.calls) };
  }
}
