/**
 * RowMemory: which memory of the rows may have been touched, so that what nobody holds any more is given back to the system.
 * Guarantee: after a plan has run, no row keeps memory beyond the blocks that are accounted to it.
 */
import type { KvCache } from '../kv/kv-cache.ts';
import type { PlanDraft } from './plan-draft.ts';
import type { RowCopy } from './row-map.ts';

export class RowMemory {
  readonly #kv: KvCache;
  /** Blocks of a row that may have been touched since its last release. */
  readonly #touched: Int32Array;

  constructor(kv: KvCache, rowCount: number) {
    this.#kv = kv;
    this.#touched = new Int32Array(rowCount);
  }

  copy(copy: RowCopy, draft: PlanDraft): void {
    draft.copies.push(copy);
    this.#touched[copy.to] = Math.max(this.#touched[copy.to]!, this.#kv.blocksFor(copy.tokens));
  }

  /** Names what may go. The last thing of a plan: all rows have their blocks by now. */
  release(draft: PlanDraft): void {
    for (let row = 0; row < this.#touched.length; row += 1) {
      const held = this.#kv.heldBlocks(row);
      if (this.#touched[row]! > held) draft.releases.push({ row, fromToken: held * this.#kv.shape.blockTokens });
      this.#touched[row] = held;
    }
    const evicted = this.#kv.takeEvicted();
    if (evicted.length > 0) draft.plan.releasedBlocks = evicted;
  }
}
