/**
 * RowMemory: which memory of the rows may have been touched. Some of what nobody holds any more is kept for those that come next, as long as the budget has
 * it free; the rest is given back to the system, the last rows' first: the first ones are taken again soonest.
 * Guarantee: after a plan has run, rows keep no memory beyond the blocks that are accounted to them and as many free ones as they may spare.
 */
import type { KvCache } from '../kv/kv-cache.ts';
import type { PlanDraft } from './plan-draft.ts';
import type { RowCopy } from './row-map.ts';

export interface RowMemoryOptions {
  rowCount: number;
  /** Of the budget's free ones, those that rows may keep. */
  spareBlocks: number;
}

export class RowMemory {
  readonly #kv: KvCache;
  readonly #spareBlocks: number;
  /** Blocks of a row that may have been touched since its last release. */
  readonly #touched: Int32Array;

  constructor(kv: KvCache, { rowCount, spareBlocks }: RowMemoryOptions) {
    this.#kv = kv;
    this.#spareBlocks = spareBlocks;
    this.#touched = new Int32Array(rowCount);
  }

  copy(copy: RowCopy, draft: PlanDraft): void {
    draft.copies.push(copy);
    this.#touched[copy.to] = Math.max(this.#touched[copy.to]!, this.#kv.blocksFor(copy.tokens));
  }

  /** Names what may go. The last thing of a plan: all rows have their blocks by now. */
  release(draft: PlanDraft): void {
    const touched = this.#touched;
    let excess = -Math.min(this.#spareBlocks, this.#kv.freeBlocks);
    for (let row = 0; row < touched.length; row += 1) {
      const held = this.#kv.heldBlocks(row);
      touched[row] = Math.max(touched[row]!, held);
      excess += touched[row]! - held;
    }
    for (let row = touched.length - 1; row >= 0 && excess > 0; row -= 1) {
      const given = Math.min(excess, touched[row]! - this.#kv.heldBlocks(row));
      if (given === 0) continue;
      touched[row]! -= given;
      excess -= given;
      draft.releases.push({ row, fromToken: touched[row]! * this.#kv.shape.blockTokens });
    }
    const evicted = this.#kv.takeEvicted();
    if (evicted.length > 0) draft.plan.releasedBlocks = evicted;
  }
}
