/**
 * GrammarMatcher: how far one answer has come in its grammar. It depends on the accepted tokens alone, so another batcher takes it up by accepting
 * them again.
 */
import type { TokenMask } from '../sampling/token-mask.ts';
import type { CompiledGrammar } from './compiled-grammar.ts';
import { DEAD, type StateTable } from './state-table.ts';

export class GrammarMatcher {
  readonly #grammar: CompiledGrammar;
  readonly #endTokenIds: ReadonlySet<number>;
  #table: StateTable;
  #state: number;
  #isEnded = false;

  constructor(grammar: CompiledGrammar) {
    this.#grammar = grammar;
    this.#endTokenIds = new Set(grammar.vocabulary.endTokenIds);
    this.#table = grammar.table;
    this.#state = this.#table.start;
  }

  /** Nothing can follow but an end token, or one was accepted. */
  get isComplete(): boolean {
    return this.#isEnded || this.#table.mustEnd(this.#state);
  }

  /** Tokens that may come next. Made once for each state of the grammar and kept; nobody may write to it. */
  mask(): TokenMask {
    this.#adopt();
    return this.#grammar.maskOf(this.#state);
  }

  /** Of the tokens that may come next those behind which so many more are enough to complete it; undefined where none was found. */
  closingMask(tokenCount: number): TokenMask | undefined {
    this.#adopt();
    return this.#grammar.closingMaskOf(this.#state, tokenCount);
  }

  /** So many tokens are enough to complete it from here, and once this token has come. An end token completes it. */
  get tokensToEnd(): number {
    return this.#isEnded ? 0 : this.#table.tokensToEnd(this.#state);
  }

  tokensToEndAfter(tokenId: number): number {
    return this.#endTokenIds.has(tokenId) ? 0 : this.#table.tokensToEnd(this.#after(this.#state, tokenId));
  }

  /** Makes the masks that are needed while these tokens come next, as far as they fit. */
  prepare(tokenIds: readonly number[]): void {
    this.mask();
    let state = this.#state;
    for (const tokenId of tokenIds) {
      state = this.#after(state, tokenId);
      if (state === DEAD) return;
      this.#grammar.maskOf(state);
    }
  }

  /** How many of these tokens fit, one after the other. */
  fitting(tokenIds: readonly number[]): number {
    let state = this.#state;
    let count = 0;
    while (count < tokenIds.length) {
      state = this.#after(state, tokenIds[count]!);
      if (state === DEAD) break;
      count++;
    }
    return count;
  }

  /** Throws where the token does not fit; whoever samples by the mask never meets that. */
  accept(tokenId: number): void {
    if (this.#isEnded) throw new Error('A token is accepted behind the end of a structured answer.');
    if (this.#endTokenIds.has(tokenId)) {
      if (!this.#table.mayEnd(this.#state)) throw new Error('A structured answer cannot end here.');
      this.#isEnded = true;
      return;
    }
    const next = this.#after(this.#state, tokenId);
    if (next === DEAD) throw new Error(`Token ${tokenId} does not fit the structure of the answer.`);
    this.#state = next;
  }

  #after(state: number, tokenId: number): number {
    const control = this.#table.automaton.controls.indexOf(tokenId);
    if (control !== -1) return this.#table.afterControl(state, control);
    const bytes = this.#grammar.vocabulary.bytesOf(tokenId);
    if (bytes.length === 0) return DEAD;
    let current = state;
    for (const byte of bytes) {
      current = this.#table.afterByte(current, byte);
      if (current === DEAD) return DEAD;
    }
    return current;
  }

  #adopt(): void {
    const { table } = this.#grammar;
    if (table === this.#table) return;
    this.#state = table.adopt(this.#table, this.#state);
    this.#table = table;
  }
}
