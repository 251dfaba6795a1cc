/**
 * Candidates: the tokens that may still be drawn, narrowed by top_k, top_p, min_p and typical_p in this order; each looks at the
 * survivors of the one before, renormalized. Every set is exactly the one that sorting the vocabulary would give, ties by lower id
 * (weights are known to better than 1e-6 of the mass).
 */
import type { LogitRow } from './logit-row.ts';
import { PrefixSelection } from './prefix-selection.ts';
import { WEIGHT_LIMIT } from './row-kernels.ts';
import type { SamplingScratch } from './sampling-scratch.ts';

/** What narrows the vocabulary; undefined or the neutral value (top_p 1, min_p 0, typical_p 1) leaves it as it is. */
export interface Narrowing {
  topK: number | undefined;
  topP: number | undefined;
  minP: number | undefined;
  typicalP: number | undefined;
}

/** A typical set is looked for among the tokens within these distances (in nats) of the largest, nearest first; most end in the first two. */
const DISTANCES = [4, 9, 18, WEIGHT_LIMIT];
/** The same for the cut of a nucleus; near ones cost little, since few tokens are within them. The last is a little more than the limit, whose own tokens are then in it however it is rounded. */
const NUCLEUS_DISTANCES = [5, 7, 10, 14, WEIGHT_LIMIT * 1.001];
/** Every finite float32 is at least this. */
const LEAST_FINITE = -3.4028234663852886e38;
/** Collecting compares in float32 and takes in a little more; the exact comparison follows. */
const COLLECT_SLACK = 1.00001;

/** A scanned row and 1 / temperature. */
interface ScaledRow {
  row: LogitRow;
  inverseTemperature: number;
}

export class Candidates {
  readonly #scratch: SamplingScratch;
  readonly #selection: PrefixSelection;

  /** Candidates 0 to count - 1 of the scratch's ids, distances and weights, ascending by id. */
  #count = 0;
  /** Sum of their weights. */
  #mass = 0;

  constructor(scratch: SamplingScratch) {
    this.#scratch = scratch;
    this.#selection = new PrefixSelection(scratch.members);
  }

  /** The listed token ids, ascending: a view, valid until the next call. */
  get ids(): Int32Array {
    return this.#scratch.ids.subarray(0, this.#count);
  }

  /** The token that `uniform` (in [0, 1)) falls on: every token that the narrowing leaves has its share of the mass, laid out in order of id. */
  choose(row: LogitRow, inverseTemperature: number, { uniform, narrowing }: { uniform: number; narrowing: Narrowing }): number {
    const cut = this.narrow(row, inverseTemperature, narrowing);
    return cut === undefined ? this.#draw(uniform) : row.tokenAt(uniform * row.sumAbove(cut));
  }

  /**
   * Lists what a scanned row and the narrowing leave, at least the most likely token. Where that is long it is not listed: the answer is then the
   * least logit of the set, and the row's weights are 0 for equal logits outside it.
   */
  narrow(row: LogitRow, inverseTemperature: number, { topK, topP, minP, typicalP }: Narrowing): number | undefined {
    // min_p bounds the ratio to the largest probability, which is a bound on the distance.
    const limit = minP !== undefined && minP > 0 ? Math.min(-Math.log(minP), WEIGHT_LIMIT) : WEIGHT_LIMIT;
    const typical = typicalP !== undefined && typicalP < 1 ? typicalP : undefined;
    const nucleus = topP !== undefined && topP < 1 ? topP : undefined;
    const scaled = { row, inverseTemperature };
    if (topK !== undefined && topK < row.logits.length) {
      this.#listTop(row, topK);
      this.#weighListed(inverseTemperature);
      if (nucleus !== undefined) this.#keepSmallest(this.#scratch.distances, nucleus * this.#mass);
    } else {
      const total = row.weigh(inverseTemperature);
      if (nucleus !== undefined) {
        const cut = Math.max(this.#nucleusCut(scaled, nucleus * total), leastWithin(scaled, limit));
        if (typical === undefined) return cut;
        this.#listFrom(scaled, cut);
      } else if (typical === undefined) {
        return leastWithin(scaled, limit);
      } else if (limit === WEIGHT_LIMIT) {
        this.#listTypical(scaled, typical, total);
        return undefined;
      } else {
        this.#listFrom(scaled, leastWithin(scaled, limit));
      }
    }
    if (limit < WEIGHT_LIMIT) this.#keep(this.#scratch.distances, limit, this.#count);
    if (typical !== undefined) this.#keepTypical(typical * this.#mass, this.#meanDistance());
    return undefined;
  }

  /** The listed candidate in whose share of the mass `uniform` falls. */
  #draw(uniform: number): number {
    const { ids, weights } = this.#scratch;
    const target = uniform * this.#mass;
    let sum = 0;
    for (let i = 0; i < this.#count - 1; i++) {
      sum += weights[i]!;
      if (sum > target) return ids[i]!;
    }
    return ids[this.#count - 1]!;
  }

  /** The `count` most likely tokens of a scanned row, best first, ties by lower id. For small counts. */
  mostLikely(row: LogitRow, count: number): number[] {
    this.#listTop(row, count);
    return Array.from(this.ids).sort((a, b) => row.logits[b]! - row.logits[a]! || a - b);
  }

  /** Tokens whose logit is at least `least`, with the weights of the last weigh(). */
  #listFrom({ row, inverseTemperature }: ScaledRow, least: number): void {
    this.#listCollected(row, inverseTemperature, row.collect(least));
  }

  #listCollected(row: LogitRow, inverseTemperature: number, collected: number): void {
    const { ids, distances, weights } = this.#scratch;
    let count = 0;
    let mass = 0;
    for (let i = 0; i < collected; i++) {
      const id = ids[i]!;
      const weight = row.weights[id]!;
      if (weight === 0) continue;
      ids[count] = id;
      distances[count] = (row.max - row.logits[id]!) * inverseTemperature;
      weights[count++] = weight;
      mass += weight;
    }
    this.#count = count;
    this.#mass = mass;
  }

  /**
   * Least logit of the smallest set whose weights reach `target`: sums by distance say in which narrow range it lies, then the tokens there are
   * selected among. Sets the row's weight to 0 for tokens of that very logit that are not in the set.
   */
  #nucleusCut({ row, inverseTemperature }: ScaledRow, target: number): number {
    const { ids, distances, weights } = this.#scratch;
    let massAbove = 0;
    let cutBin = 0;
    for (const distance of NUCLEUS_DISTANCES) {
      const masses = row.massesWithin(distance / inverseTemperature);
      massAbove = 0;
      cutBin = -1;
      let mass = 0;
      for (let bin = 0; bin < masses.length && mass < target; bin++) {
        if (masses[bin] === 0) continue;
        massAbove = mass;
        cutBin = bin;
        mass += masses[bin]!;
      }
      if (mass >= target) break;
    }
    const collected = row.collectBin(cutBin);
    for (let i = 0; i < collected; i++) {
      distances[i] = row.max - row.logits[ids[i]!]!;
      weights[i] = row.weights[ids[i]!]!;
    }
    this.#selection.select(distances, weights, collected, target - massAbove);
    const { cutKey, cutIndex } = this.#selection;
    for (let i = cutIndex + 1; i < collected; i++) if (distances[i]! === cutKey) row.weights[ids[i]!] = 0;
    return row.logits[ids[cutIndex]!]!;
  }

  /** Keeps the smallest set, in ascending order of key, whose weights reach `target`. */
  #keepSmallest(keys: Float64Array, target: number): void {
    this.#selection.select(keys, this.#scratch.weights, this.#count, target);
    this.#keep(keys, this.#selection.cutKey, this.#selection.cutIndex);
  }

  /** Lists the `count` largest logits with their unscaled distances; fewer where fewer are finite. */
  #listTop(row: LogitRow, count: number): void {
    const { ids, distances, weights, ones } = this.#scratch;
    const collected = row.collect(this.#topFloor(row, count));
    for (let i = 0; i < collected; i++) {
      distances[i] = row.max - row.logits[ids[i]!]!;
      weights[i] = 1;
    }
    this.#count = collected;
    if (collected <= count) return;
    this.#selection.select(distances, ones, collected, count);
    this.#keep(distances, this.#selection.cutKey, this.#selection.cutIndex);
  }

  /** A value that at least `count` logits reach, and few more: the count-th largest of the blocks' maxima, since each stands for one logit. */
  #topFloor(row: LogitRow, count: number): number {
    const { keys, ones } = this.#scratch;
    if (count > row.maxima.length) return LEAST_FINITE;
    let finite = 0;
    for (let block = 0; block < row.maxima.length; block++) {
      if (row.maxima[block]! > -Infinity) keys[finite++] = row.max - row.maxima[block]!;
    }
    if (count > finite) return LEAST_FINITE;
    this.#selection.select(keys, ones, finite, count);
    return row.max - this.#selection.cutKey;
  }

  /** From bare differences of logits to scaled distances and weights; those of no weight are left out. */
  #weighListed(inverseTemperature: number): void {
    const { ids, distances, weights } = this.#scratch;
    let kept = 0;
    let mass = 0;
    for (let i = 0; i < this.#count; i++) {
      const distance = distances[i]! * inverseTemperature;
      if (distance >= WEIGHT_LIMIT) continue;
      const weight = Math.exp(-distance);
      ids[kept] = ids[i]!;
      distances[kept] = distance;
      weights[kept++] = weight;
      mass += weight;
    }
    this.#count = kept;
    this.#mass = mass;
  }

  #meanDistance(): number {
    const { distances, weights } = this.#scratch;
    let sum = 0;
    for (let i = 0; i < this.#count; i++) sum += weights[i]! * distances[i]!;
    return sum / this.#mass;
  }

  /**
   * Locally typical sampling (Meister et al., 2023): those whose surprise is nearest to the entropy, until their mass reaches `target`.
   * Surprise is distance + log mass, so its difference from the entropy is that of the distance from the mean distance.
   */
  #keepTypical(target: number, mean: number): void {
    const { distances, keys } = this.#scratch;
    for (let i = 0; i < this.#count; i++) keys[i] = Math.abs(distances[i]! - mean);
    this.#keepSmallest(keys, target);
  }

  /** The typical set of the whole row. Among tokens within twice the mean distance nothing outside is nearer to the mean than anything inside. */
  #listTypical({ row, inverseTemperature }: ScaledRow, typicalP: number, total: number): void {
    const mean = (row.sumDistances() * inverseTemperature) / total;
    for (const distance of DISTANCES) {
      if (distance < 2 * mean && distance < WEIGHT_LIMIT) continue;
      this.#listFrom({ row, inverseTemperature }, row.max - (distance * COLLECT_SLACK) / inverseTemperature);
      if (this.#mass >= typicalP * total) break;
    }
    this.#keepTypical(typicalP * total, mean);
  }

  /** Drops every candidate past the cut. */
  #keep(keys: Float64Array, cutKey: number, cutIndex: number): void {
    const { ids, distances, weights } = this.#scratch;
    let kept = 0;
    let mass = 0;
    for (let i = 0; i < this.#count; i++) {
      const key = keys[i]!;
      if (key < cutKey || (key === cutKey && i <= cutIndex)) {
        const weight = weights[i]!;
        ids[kept] = ids[i]!;
        distances[kept] = distances[i]!;
        weights[kept++] = weight;
        mass += weight;
      }
    }
    this.#count = kept;
    this.#mass = mass;
  }
}

const FLOAT = new Float32Array(1);
const FLOAT_BITS = new Int32Array(FLOAT.buffer);

/** The next float32 above (step 1) or below (step -1) a finite one that is not 0. */
function neighbour(value: number, step: 1 | -1): number {
  FLOAT[0] = value;
  FLOAT_BITS[0]! += value > 0 ? step : -step;
  return FLOAT[0]!;
}

/** The least float32 whose distance from the largest, as computed in float64, is within `limit` nats. */
function leastWithin({ row, inverseTemperature }: ScaledRow, limit: number): number {
  const isWithin = (logit: number): boolean => (row.max - logit) * inverseTemperature <= limit;
  let least = Math.fround(row.max - limit / inverseTemperature);
  if (least === 0 || !Number.isFinite(least)) return Math.max(least, LEAST_FINITE);
  while (!isWithin(least)) least = neighbour(least, 1);
  while (least !== 0 && isWithin(neighbour(least, -1))) least = neighbour(least, -1);
  return least;
}
