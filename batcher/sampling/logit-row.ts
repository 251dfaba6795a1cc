/**
 * LogitRow: one row of logits in the kernels' memory, and what is asked of a whole row. Load it (or write `logits` and scan() them), then ask.
 */
import { MASS_BINS, MAX_BLOCK, type RowKernels, SUM_BLOCK } from './row-kernels.ts';

const FLOAT_BYTES = 4;

/** Addresses in bytes, sizes in tokens. */
export interface RowLayout {
  row: number;
  weights: number;
  ids: number;
  maxima: number;
  sums: number;
  masses: number;
  vocabSize: number;
  /** vocabSize up to the next multiple of SUM_BLOCK; what lies between is -Infinity. */
  padded: number;
}

export class LogitRow {
  /** [vocabSize]; written by load(), or by an editor before scan(). */
  readonly logits: Float32Array;
  /** exp((logit - max) / temperature), valid after weigh(). */
  readonly weights: Float32Array;
  /** Valid after collect(). */
  readonly ids: Int32Array;
  /** Largest logit of each MAX_BLOCK tokens, valid after load() or scan(). */
  readonly maxima: Float32Array;

  readonly #kernels: RowKernels;
  readonly #layout: RowLayout;
  readonly #sums: Float64Array;
  readonly #masses: Float64Array;
  /** Bins of the last massesWithin() in one unit of logit. */
  #binsPerLogit = 0;
  #max = -Infinity;
  /** The last block whose sum is not 0. */
  #lastBlock = 0;
  /** The last sum is of tokens whose logit is at least this. */
  #least = -Infinity;

  constructor(kernels: RowKernels, buffer: ArrayBufferLike, layout: RowLayout) {
    const { row, weights, ids, maxima, sums, masses, vocabSize, padded } = layout;
    this.#kernels = kernels;
    this.#layout = layout;
    new Float32Array(buffer, row, padded).fill(-Infinity);
    this.logits = new Float32Array(buffer, row, vocabSize);
    this.weights = new Float32Array(buffer, weights, vocabSize);
    this.ids = new Int32Array(buffer, ids, padded);
    this.maxima = new Float32Array(buffer, maxima, padded / MAX_BLOCK);
    this.#sums = new Float64Array(buffer, sums, padded / SUM_BLOCK);
    this.#masses = new Float64Array(buffer, masses, MASS_BINS);
  }

  /** Largest logit, of the last load() or scan(); -Infinity where there is no number. */
  get max(): number {
    return this.#max;
  }

  /** Copies `source`, [vocabSize], and scans it. */
  load(source: Float32Array): void {
    const { row, padded, maxima } = this.#layout;
    this.#kernels.load(source, row, padded, maxima);
    this.#findMax();
  }

  scan(): void {
    const { row, padded, maxima } = this.#layout;
    this.#kernels.blockMaxima(row, padded, maxima);
    this.#findMax();
  }

  /** After a scan and changes to the logits of these few tokens only. */
  rescan(ids: readonly number[]): void {
    const { row, maxima } = this.#layout;
    for (const id of ids) {
      const block = Math.floor(id / MAX_BLOCK);
      this.#kernels.blockMaxima(row + block * MAX_BLOCK * FLOAT_BYTES, MAX_BLOCK, maxima + block * FLOAT_BYTES);
    }
    this.#findMax();
  }

  #findMax(): void {
    let max = -Infinity;
    for (let block = 0; block < this.maxima.length; block++) if (this.maxima[block]! > max) max = this.maxima[block]!;
    this.#max = max;
  }

  /** The lowest id that has the largest logit. */
  argmax(): number {
    const block = this.maxima.indexOf(this.#max);
    return this.logits.indexOf(this.#max, block * MAX_BLOCK);
  }

  /** Fills `weights` and returns their sum. The largest has weight 1. */
  weigh(inverseTemperature: number): number {
    const { row, padded, weights, sums } = this.#layout;
    this.#least = -Infinity;
    this.#kernels.weigh(row, padded, this.#max, inverseTemperature * Math.LOG2E, weights, sums);
    return this.#total();
  }

  /** The sum of the weights of tokens whose logit is at least `least`; tokenAt() then draws among them. */
  sumAbove(least: number): number {
    const { row, padded, weights, sums } = this.#layout;
    this.#least = least;
    this.#kernels.sumAbove(row, padded, least, weights, sums);
    return this.#total();
  }

  /** The sum over all tokens of weight * (max - logit), of the last weigh(). */
  sumDistances(): number {
    const { row, padded, weights } = this.#layout;
    return this.#kernels.sumDistances(row, padded, this.#max, weights);
  }

  /** The token in whose share of the last sum `target` falls, shares laid out in order of id: sums of blocks first, then one block's tokens. */
  tokenAt(target: number): number {
    let rest = target;
    let block = 0;
    while (block < this.#lastBlock && this.#sums[block]! <= rest) rest -= this.#sums[block++]!;
    // Rounding may carry the target past the last weight of the block: then it is the last one's.
    let chosen = -1;
    const end = Math.min(this.weights.length, (block + 1) * SUM_BLOCK);
    for (let id = block * SUM_BLOCK; id < end; id++) {
      const weight = this.weights[id]!;
      if (weight === 0 || this.logits[id]! < this.#least) continue;
      chosen = id;
      rest -= weight;
      if (rest < 0) break;
    }
    return chosen;
  }

  /** Puts the ids of all tokens whose logit is at least `least` (finite) into `ids`, ascending; returns how many. */
  collect(least: number): number {
    const { row, padded, maxima, ids } = this.#layout;
    return this.#kernels.collect(row, padded, least, maxima, ids);
  }

  /** Sums of the weights of the last weigh() by distance from the largest logit: MASS_BINS equal ranges that reach up to `span` (in logits). */
  massesWithin(span: number): Float64Array {
    const { row, padded, weights, maxima, masses } = this.#layout;
    this.#binsPerLogit = MASS_BINS / span;
    this.#kernels.binMasses(row, padded, this.#max, this.#binsPerLogit, weights, maxima, masses);
    return this.#masses;
  }

  /** Puts the ids of the tokens in one of these ranges into `ids`, ascending; returns how many. */
  collectBin(bin: number): number {
    const { row, padded, maxima, ids } = this.#layout;
    return this.#kernels.collectBin(row, padded, this.#max, this.#binsPerLogit, bin, maxima, ids);
  }

  #total(): number {
    let total = 0;
    for (let block = 0; block < this.#sums.length; block++) {
      const sum = this.#sums[block]!;
      if (sum > 0) this.#lastBlock = block;
      total += sum;
    }
    return total;
  }
}
