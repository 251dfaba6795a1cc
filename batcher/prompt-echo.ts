/**
 * PromptEcho: a prompt told back in front of its choices: its text at once, or token by token with log-probabilities, as its logits come.
 * Guarantee: every token is told once and in order, also where its logits are computed a second time or an earlier attempt told of it.
 */
import type { EchoedToken } from '../shared/token-event.ts';
import type { PromptScorer } from './sampling/prompt-scorer.ts';
import { IncrementalDetokenizer, type TokenBytes } from './text/incremental-detokenizer.ts';
import { logprobEntry, tokenText } from './text/logprob-entry.ts';

export interface EchoPiece {
  tokenCount: number;
  text: string;
  tokens?: EchoedToken[];
}

export interface PromptEchoOptions {
  tokenIds: readonly number[];
  /** What each of them is in the prompt's text. */
  pieces: readonly Uint8Array[];
  /** Absent: the text alone is told. */
  scoring?: { scorer: PromptScorer; topCount: number; tokenBytes: TokenBytes } | undefined;
}

export class PromptEcho {
  readonly #options: PromptEchoOptions;
  readonly #detokenizer: IncrementalDetokenizer;
  #toldCount = 0;

  constructor(options: PromptEchoOptions) {
    this.#options = options;
    this.#detokenizer = new IncrementalDetokenizer(index => options.pieces[index]!);
  }

  /** Log-probabilities are told too. */
  get isScored(): boolean {
    return this.#options.scoring !== undefined;
  }

  get isTold(): boolean {
    return this.#toldCount >= this.#options.tokenIds.length;
  }

  /** An earlier attempt told of so many more. */
  skip(tokenCount: number): void {
    this.#text(this.#toldCount + tokenCount);
  }

  /** All that is not told, without log-probabilities. */
  rest(): EchoPiece {
    const tokenCount = this.#options.tokenIds.length - this.#toldCount;
    return { tokenCount, text: this.#text(this.#options.tokenIds.length) };
  }

  /** What the logits [count, vocabSize] of the positions from `start` on add: position p scores token p + 1. */
  score(start: number, logits: Float32Array): EchoPiece | undefined {
    const { tokenIds, scoring } = this.#options;
    if (scoring === undefined || this.isTold) return undefined;
    const { scorer, topCount, tokenBytes } = scoring;
    const { vocabSize } = scorer;
    const from = this.#toldCount;
    const end = Math.min(tokenIds.length, start + logits.length / vocabSize + 1);
    const tokens: EchoedToken[] = [];
    for (let index = from; index < end; index += 1) {
      const tokenId = tokenIds[index]!;
      const bytes = this.#options.pieces[index]!;
      if (index === 0) {
        tokens.push({ token: tokenText(tokenBytes(tokenId)), tokenId, logprob: null, bytes: Array.from(bytes), top: [] });
        continue;
      }
      const row = index - 1 - start;
      const scored = scorer.score(logits.subarray(row * vocabSize, (row + 1) * vocabSize), tokenId, topCount);
      tokens.push({ ...logprobEntry(tokenId, scored, { tokenBytes }), bytes: Array.from(bytes) });
    }
    if (tokens.length === 0) return undefined;
    return { tokenCount: tokens.length, text: this.#text(end), tokens };
  }

  /** Text of the tokens up to `end`, which are then told; with the last one comes what was left of a character. */
  #text(end: number): string {
    let text = '';
    for (; this.#toldCount < end && !this.isTold; this.#toldCount += 1) text += this.#detokenizer.push(this.#toldCount);
    return this.isTold ? text + this.#detokenizer.flush() : text;
  }
}
