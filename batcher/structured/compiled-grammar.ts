/**
 * CompiledGrammar: a grammar ready to be followed by any number of answers at a time, with all that was found out on the way: states and masks.
 * What it keeps is bounded; past the bound it begins anew, and answers under way take their states along.
 */
import type { TokenMask } from '../sampling/token-mask.ts';
import { type Automaton, automatonBytes } from './automaton.ts';
import { makeClosingMask, makeMask } from './mask-maker.ts';
import type { SpelledVocabulary } from './spelled-vocabulary.ts';
import { StateTable } from './state-table.ts';

const MAX_TABLE_BYTES = 8 * 2 ** 20;
const MAX_MASK_BYTES = 4 * 2 ** 20;
/** Places to be looked at for one mask, at most: tens of milliseconds on a slow core, where usual grammars take a hundredth. */
const MAX_MASK_WORK = 200_000;
/** What a mask may take on average; what was not used before may be used later. Past it masks have some of the tokens that fit, not all. */
const MEAN_MASK_WORK = 30_000;
const MAX_SAVED_WORK = 1_000_000;

export class CompiledGrammar {
  readonly vocabulary: SpelledVocabulary;
  readonly #automaton: Automaton;
  #table: StateTable;
  readonly #masks = new Map<number, TokenMask>();
  #savedWork = MAX_SAVED_WORK;

  constructor(automaton: Automaton, vocabulary: SpelledVocabulary) {
    this.vocabulary = vocabulary;
    this.#automaton = automaton;
    this.#table = new StateTable(automaton);
  }

  /** Roughly what it takes in memory. */
  get bytes(): number {
    const maskBytes = this.#masks.size * (this.vocabulary.vocabSize / 8);
    return automatonBytes(this.#automaton) + this.#table.bytes + maskBytes;
  }

  /** Where states are numbered now. A new one when the old had grown too large; states of the old are to be adopted. */
  get table(): StateTable {
    if (this.#table.bytes > MAX_TABLE_BYTES) {
      this.#table = new StateTable(this.#automaton);
      this.#masks.clear();
    }
    return this.#table;
  }

  /** `state` is of the present table. */
  maskOf(state: number): TokenMask {
    let mask = this.#masks.get(state);
    if (mask !== undefined) return mask;
    mask = this.#bounded(table => makeMask(table, state, this.vocabulary));
    if (this.#masks.size * mask.words.byteLength > MAX_MASK_BYTES) this.#masks.clear();
    this.#masks.set(state, mask);
    return mask;
  }

  /** Of the tokens that may come next those behind which so many more are enough to complete the answer; undefined where none was found. Not kept. */
  closingMaskOf(state: number, tokenCount: number): TokenMask | undefined {
    return this.#bounded(table => makeClosingMask({ table, state, tokenCount }, this.vocabulary));
  }

  /** Makes a mask within the work that it may take. */
  #bounded<Mask>(make: (table: StateTable) => Mask): Mask {
    const table = this.#table;
    const before = table.work;
    table.limitWork(Math.min(MAX_MASK_WORK, Math.max(MEAN_MASK_WORK, this.#savedWork)));
    const mask = make(table);
    table.limitWork(Number.POSITIVE_INFINITY);
    this.#savedWork = Math.min(MAX_SAVED_WORK, this.#savedWork + MEAN_MASK_WORK - (table.work - before));
    return mask;
  }
}
