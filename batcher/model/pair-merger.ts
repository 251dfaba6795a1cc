/**
 * PairMerger: byte pair encoding of one word: joins the neighbours whose merge ranks lowest, leftmost first, until none is left.
 * It works on token ids in typed arrays with a heap, n log n for a word of n symbols, so that a hostile text (a million letters without
 * a space) takes a fraction of a second.
 *
 * Source: Sennrich et al., Neural Machine Translation of Rare Words with Subword Units, 2016.
 */
import type { MergeTable } from './merge-table.ts';

export class PairMerger {
  readonly #tokenCount: number;
  /** left * tokenCount + right to rank. */
  readonly #ranks = new Map<number, number>();
  /** Rank to the id of the union. */
  readonly #unions: number[] = [];
  readonly #heap = new NumberHeap();
  #symbols = new Int32Array(256);
  #next = new Int32Array(256);
  #previous = new Int32Array(256);

  constructor(merges: MergeTable, tokenCount: number) {
    this.#tokenCount = tokenCount;
    for (let i = 0; i < merges.length; i += 3) {
      this.#ranks.set(merges[i]! * tokenCount + merges[i + 1]!, this.#unions.length);
      this.#unions.push(merges[i + 2]!);
    }
  }

  /** Symbols below 0 stand for something that is no token; they merge with nothing and come out as they are. */
  merge(symbols: ArrayLike<number>, into: number[]): void {
    const count = symbols.length;
    this.#load(symbols);
    const heap = this.#heap;
    heap.clear();
    for (let at = 0; at + 1 < count; at++) this.#offer(at);
    for (let entry = heap.pop(); entry !== undefined; entry = heap.pop()) {
      const rank = Math.floor(entry / POSITIONS);
      const at = entry - rank * POSITIONS;
      // Entries are not taken out when their symbols change; one that no longer fits its place is stale.
      if (this.#rankAt(at) !== rank) continue;
      this.#join(at, this.#unions[rank]!);
    }
    for (let at = 0; at < count && at !== -1; at = this.#next[at]!) into.push(this.#symbols[at]!);
  }

  #load(symbols: ArrayLike<number>): void {
    const count = symbols.length;
    if (count > this.#symbols.length) {
      const room = 2 ** Math.ceil(Math.log2(count));
      this.#symbols = new Int32Array(room);
      this.#next = new Int32Array(room);
      this.#previous = new Int32Array(room);
    }
    this.#symbols.set(symbols);
    for (let at = 0; at < count; at++) {
      this.#next[at] = at + 1 < count ? at + 1 : -1;
      this.#previous[at] = at - 1;
    }
  }

  #join(at: number, union: number): void {
    const joined = this.#next[at]!;
    const after = this.#next[joined]!;
    this.#symbols[at] = union;
    this.#symbols[joined] = GONE;
    this.#next[at] = after;
    if (after !== -1) {
      this.#previous[after] = at;
      this.#offer(at);
    }
    const before = this.#previous[at]!;
    if (before !== -1) this.#offer(before);
  }

  #offer(at: number): void {
    const rank = this.#rankAt(at);
    if (rank !== undefined) this.#heap.push(rank * POSITIONS + at);
  }

  /** Of the symbol and its neighbour to the right. */
  #rankAt(at: number): number | undefined {
    const left = this.#symbols[at]!;
    const neighbour = this.#next[at]!;
    if (left < 0 || neighbour === -1) return undefined;
    const right = this.#symbols[neighbour]!;
    return right < 0 ? undefined : this.#ranks.get(left * this.#tokenCount + right);
  }
}

/** A heap entry is rank * POSITIONS + position: ordered by rank, then from left to right, and exact below 2 ** 53. */
const POSITIONS = 2 ** 31;
const GONE = -0x80000000;

/** The smallest number first. */
class NumberHeap {
  readonly #items: number[] = [];

  clear(): void {
    this.#items.length = 0;
  }

  push(item: number): void {
    const items = this.#items;
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (items[parent]! <= item) break;
      items[at] = items[parent]!;
      at = parent;
    }
    items[at] = item;
  }

  pop(): number | undefined {
    const items = this.#items;
    const smallest = items[0];
    const last = items.pop();
    if (last === undefined || items.length === 0) return smallest;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && items[child + 1]! < items[child]!) child++;
      if (items[child]! >= last) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = last;
    return smallest;
  }
}
