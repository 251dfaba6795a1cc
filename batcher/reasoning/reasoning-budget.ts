/**
 * ReasoningBudget: the tokens that the reasoning of one answer may have; once they are spent, the mark that ends it is what comes next, token by token.
 * What it says depends on the answer's tokens alone.
 */
import { Utf8Decoder } from '../text/utf8-decoder.ts';
import { ReasoningParser } from './reasoning-parser.ts';
import type { Reasoning } from './reasoning-syntax.ts';

export interface ReasoningBudgetOptions {
  reasoning: Pick<Reasoning, 'start'>;
  /** At least 1; the closing mark comes besides. */
  maxTokens: number;
  /** Spell the closing mark. */
  closerTokenIds: readonly number[];
  /** UTF-8 of a token, marks spelled. */
  tokenBytes(id: number): Uint8Array;
}

export class ReasoningBudget {
  readonly #options: ReasoningBudgetOptions;
  readonly #parser: ReasoningParser;
  readonly #decoder = new Utf8Decoder();
  #spent = 0;
  /** Tokens of the closing mark that came last, since the budget was spent. */
  #closing = 0;

  constructor(options: ReasoningBudgetOptions) {
    this.#options = options;
    this.#parser = new ReasoningParser(options.reasoning);
  }

  /** The only token that may come next; undefined where the model may choose. */
  get forcedTokenId(): number | undefined {
    const { maxTokens, closerTokenIds } = this.#options;
    // A character that was begun is ended first.
    if (!this.#parser.isReasoning || this.#spent < maxTokens || this.#decoder.isPending) return undefined;
    return closerTokenIds[this.#closing];
  }

  accept(tokenId: number): void {
    this.#closing = tokenId === this.forcedTokenId ? this.#closing + 1 : 0;
    const wasReasoning = this.#parser.isReasoning;
    let text = '';
    for (const byte of this.#options.tokenBytes(tokenId)) text += this.#decoder.push(byte);
    this.#parser.push(text);
    if (wasReasoning || this.#parser.isReasoning) this.#spent++;
  }
}
