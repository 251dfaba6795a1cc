/**
 * KvMemory: keys and values of all layers, as address space that the operating system pages. Two parts:
 *
 *   rows    per layer and side  [rowCount, kvHeads, contextTokens, headDim]: what attention reads and writes in place
 *   store   per layer, side and head  [storeBlocks, blockTokens, headDim]: the blocks of the prefix cache
 *
 * Numbers are float32 or float16.
 * A page that was never touched, or was released, takes no memory. Blocks of neighbouring ids are copied and released as one piece.
 */
import { type Address, copyMemory, keepPagesSmall, mapMemory, PAGE_BYTES, releasePages, unmapMemory } from './foreign.ts';
import { residentBytes } from './resident-memory.ts';

export interface KvMemoryShape {
  layers: number;
  kvHeads: number;
  headDim: number;
  elementBytes: 2 | 4;
  rowCount: number;
  /** A multiple of blockTokens. */
  contextTokens: number;
  blockTokens: number;
  storeBlocks: number;
}

export type KvSide = 'k' | 'v';
const SIDES: readonly KvSide[] = ['k', 'v'];

export class KvMemory {
  readonly shape: KvMemoryShape;
  readonly #rows: Address;
  readonly #store: Address;
  readonly #tokenBytes: number;
  readonly #headBytes: number;
  readonly #rowBytes: number;
  readonly #layerSideBytes: number;
  readonly #blockBytes: number;
  readonly #slabBytes: number;
  /** Of the store: blocks that hold something. A page may have more than one of them, and goes back to the system with its last. */
  readonly #isStored: Uint8Array;

  constructor(shape: KvMemoryShape) {
    this.shape = shape;
    this.#tokenBytes = shape.headDim * shape.elementBytes;
    this.#headBytes = shape.contextTokens * this.#tokenBytes;
    this.#rowBytes = shape.kvHeads * this.#headBytes;
    this.#layerSideBytes = shape.rowCount * this.#rowBytes;
    this.#blockBytes = shape.blockTokens * this.#tokenBytes;
    this.#slabBytes = Math.max(1, shape.storeBlocks) * this.#blockBytes;
    this.#isStored = new Uint8Array(shape.storeBlocks);
    this.#rows = mapMemory(this.#rowsBytes);
    this.#store = mapMemory(this.#storeBytes);
    keepPagesSmall(this.#rows, this.#rowsBytes);
    keepPagesSmall(this.#store, this.#storeBytes);
  }

  get #rowsBytes(): number {
    return this.shape.layers * 2 * this.#layerSideBytes;
  }

  get #storeBytes(): number {
    return this.shape.layers * 2 * this.shape.kvHeads * this.#slabBytes;
  }

  /** Where row `row` of one layer and side begins; the rows after it follow without a gap. */
  rowAddress(layer: number, side: KvSide, row: number): Address {
    return this.#rows + BigInt((layer * 2 + SIDES.indexOf(side)) * this.#layerSideBytes + row * this.#rowBytes);
  }

  copyRow(from: number, to: number, tokens: number): void {
    const bytes = tokens * this.#tokenBytes;
    for (let plane = 0; plane < this.#planeCount; plane++) {
      copyMemory(this.#planeOfRow(plane, to), this.#planeOfRow(plane, from), bytes);
    }
  }

  saveBlocks(row: number, firstBlock: number, blockIds: readonly number[]): void {
    this.#forRuns(blockIds, (offset, blockId, count) => {
      this.#isStored.fill(1, blockId, blockId + count);
      for (let plane = 0; plane < this.#planeCount; plane++) {
        const inRow = this.#planeOfRow(plane, row) + BigInt((firstBlock + offset) * this.#blockBytes);
        copyMemory(this.#planeOfBlock(plane, blockId), inRow, count * this.#blockBytes);
      }
    });
  }

  loadBlocks(row: number, firstBlock: number, blockIds: readonly number[]): void {
    this.#forRuns(blockIds, (offset, blockId, count) => {
      for (let plane = 0; plane < this.#planeCount; plane++) {
        const inRow = this.#planeOfRow(plane, row) + BigInt((firstBlock + offset) * this.#blockBytes);
        copyMemory(inRow, this.#planeOfBlock(plane, blockId), count * this.#blockBytes);
      }
    });
  }

  releaseRow(row: number, fromToken: number): void {
    const offset = fromToken * this.#tokenBytes;
    for (let plane = 0; plane < this.#planeCount; plane++) {
      releasePages(this.#planeOfRow(plane, row) + BigInt(offset), this.#headBytes - offset);
    }
  }

  releaseBlocks(blockIds: readonly number[]): void {
    const ascending = [...blockIds].sort((a, b) => a - b);
    for (const blockId of ascending) this.#isStored[blockId] = 0;
    this.#forRuns(ascending, (_offset, blockId, count) => {
      const { from, to } = this.#freeAround(blockId, blockId + count);
      for (let plane = 0; plane < this.#planeCount; plane++) {
        releasePages(this.#planeOfBlock(plane, from), (to - from) * this.#blockBytes);
      }
    });
  }

  async residentBytes(): Promise<number | undefined> {
    return residentBytes([
      { address: this.#rows, bytes: this.#rowsBytes },
      { address: this.#store, bytes: this.#storeBytes },
    ]);
  }

  close(): void {
    unmapMemory(this.#rows, this.#rowsBytes);
    unmapMemory(this.#store, this.#storeBytes);
  }

  /** A plane is one layer, side and head. */
  get #planeCount(): number {
    return this.shape.layers * 2 * this.shape.kvHeads;
  }

  #planeOfRow(plane: number, row: number): Address {
    const layerSide = Math.floor(plane / this.shape.kvHeads);
    const head = plane % this.shape.kvHeads;
    return this.#rows + BigInt(layerSide * this.#layerSideBytes + row * this.#rowBytes + head * this.#headBytes);
  }

  #planeOfBlock(plane: number, blockId: number): Address {
    return this.#store + BigInt(plane * this.#slabBytes + blockId * this.#blockBytes);
  }

  /** The free blocks [from, to) and those beside them that are free too, as far as they may share a page. */
  #freeAround(from: number, to: number): { from: number; to: number } {
    const most = Math.max(0, Math.ceil(PAGE_BYTES / this.#blockBytes) - 1);
    let [first, end] = [from, to];
    while (first > Math.max(0, from - most) && this.#isStored[first - 1] === 0) first -= 1;
    while (end < Math.min(this.#isStored.length, to + most) && this.#isStored[end] === 0) end += 1;
    return { from: first, to: end };
  }

  /** Calls `visit` with each maximal run of ids that follow one another. */
  #forRuns(blockIds: readonly number[], visit: (offset: number, blockId: number, count: number) => void): void {
    let start = 0;
    for (let i = 1; i <= blockIds.length; i++) {
      if (i < blockIds.length && blockIds[i] === blockIds[i - 1]! + 1) continue;
      visit(start, blockIds[start]!, i - start);
      start = i;
    }
  }
}
