/**
 * PrefixSelection: the smallest set of candidates, taken in ascending order of key (ties: lower index first), whose weights reach a target.
 * Exactly the set that a full sort would give, in time linear in the number of candidates: only the histogram bin that holds the cut is looked into.
 */

const BINS = 256;
/** Below this many an insertion sort is cheaper than another histogram. */
const SORT_AT = 32;

export class PrefixSelection {
  readonly #members: Int32Array;
  readonly #bins = new Float64Array(BINS);

  /** Of the last selection: candidate i is in it when keys[i] < cutKey, or keys[i] === cutKey and i <= cutIndex. */
  cutKey = 0;
  cutIndex = 0;

  /** `members` is scratch, as long as the longest list of candidates. */
  constructor(members: Int32Array) {
    this.#members = members;
  }

  /**
   * Selects among candidates 0 to count - 1; all of them where their weights do not reach the target. Count, target and weights are positive,
   * keys finite.
   */
  select(keys: Float64Array, weights: Float64Array, count: number, target: number): void {
    for (let i = 0; i < count; i++) this.#members[i] = i;
    this.selectMembers(keys, weights, count, target);
  }

  /** The same among the candidates whose indices the caller has put, ascending, into the first `memberCount` members. */
  selectMembers(keys: Float64Array, weights: Float64Array, memberCount: number, target: number): void {
    const members = this.#members;
    let count = memberCount;
    let wanted = target;
    while (count > SORT_AT) {
      let low = Infinity;
      let high = -Infinity;
      for (let m = 0; m < count; m++) {
        const key = keys[members[m]!]!;
        if (key < low) low = key;
        if (key > high) high = key;
      }
      const scale = BINS / (high - low);
      if (!(scale < Infinity)) break;
      const bins = this.#bins.fill(0);
      for (let m = 0; m < count; m++) {
        const index = members[m]!;
        bins[binOf(keys[index]!, low, scale)]! += weights[index]!;
      }
      // The highest key lies in the last bin, so a target that rounding leaves unreached ends there; the bin of the cut is never empty.
      let cutBin = 0;
      while (cutBin < BINS - 1 && bins[cutBin]! < wanted) wanted -= bins[cutBin++]!;
      let kept = 0;
      for (let m = 0; m < count; m++) {
        const index = members[m]!;
        if (binOf(keys[index]!, low, scale) === cutBin) members[kept++] = index;
      }
      count = kept;
    }
    this.#sort(keys, count);
    let at = 0;
    while (at < count - 1) {
      wanted -= weights[members[at]!]!;
      if (wanted <= 0) break;
      at++;
    }
    this.cutIndex = members[at]!;
    this.cutKey = keys[this.cutIndex]!;
  }

  /** Members by key, equal keys by index. Equal keys arrive in order, so a long run of them costs one comparison each. */
  #sort(keys: Float64Array, count: number): void {
    const members = this.#members;
    for (let m = 1; m < count; m++) {
      const index = members[m]!;
      const key = keys[index]!;
      let hole = m;
      while (hole > 0 && keys[members[hole - 1]!]! > key) {
        members[hole] = members[hole - 1]!;
        hole--;
      }
      members[hole] = index;
    }
  }
}

function binOf(key: number, low: number, scale: number): number {
  const bin = ((key - low) * scale) | 0;
  return bin < BINS ? bin : BINS - 1;
}
