/**
 * KvCache: the budget of KV blocks, shared by the rows that are being computed and the store of prefixes that may be met again.
 * Guarantee: blocks held by rows + blocks in the store never exceed the budget, and a block that a plan still reads is never evicted.
 *
 *     budget ─┬─ rows:   held[row] blocks each, as many as the row's tokens need
 *             ├─ store:  protected (locked by a handle) | evictable (oldest goes first)
 *             └─ free
 *
 * The life of a hit: match → handle → lock → room checked again → use → (the step runs) → unlock. Everything here is bookkeeping; the
 * copies that make it true are handed out as plain data (BlockCopy) and run by the loop.
 */
import type { BlockCopy } from '../engine/engine.ts';
import { type BlockOrigin, type OriginDemand, PREFILLED, satisfies } from './block-origin.ts';
import { BlockPool } from './block-pool.ts';
import { NO_BLOCK, PUBLIC_NAMESPACE, RadixTree } from './radix-tree.ts';

export interface KvCacheShape {
  /** Tokens of one block. */
  blockTokens: number;
  /** Blocks that rows and store may hold together. */
  budgetBlocks: number;
  /** Ids of the store run from 0 to storeBlocks - 1. */
  storeBlocks: number;
  rowCount: number;
}

/** Where a token path lives: its first blocks in the public namespace, the rest in the tenant's own. */
export interface PrefixSpace {
  tenant: string;
  publicBlocks: number;
}

/** A hit: the stored blocks from the first on. Worth nothing before it is locked. */
export interface PrefixHandle {
  readonly blockIds: readonly number[];
  /** Tokens at the front that were computed by prefill alone. */
  readonly prefilledTokens: number;
}

/** What is stored of a path, and where it comes from. */
export interface SaveRequest {
  /** Told to the listener; usually the id of the request. */
  owner: string;
  space: PrefixSpace;
  tokenIds: readonly number[];
  row: number;
  /** Tokens whose keys and values the row holds; its whole blocks are saved. */
  tokenCount: number;
  /** Tokens at the front that came from prefill alone. */
  prefilledTokens: number;
  /** Origin of the blocks that do not. */
  tailOrigin: BlockOrigin;
}

/** Hears what the store takes in and loses, so that others can be told. */
export interface StoreListener {
  /** The path of an owner is stored as these blocks, from the first on; some may have been there before. */
  stored(path: { owner: string; space: PrefixSpace; blockIds: readonly number[] }): void;
  evicted(blockId: number): void;
}

export interface KvUsage {
  budgetBlocks: number;
  rowBlocks: number;
  freeBlocks: number;
  evictableBlocks: number;
  protectedBlocks: number;
  /** Prompt tokens that were looked up, and those of them that were found. */
  queryTokens: number;
  hitTokens: number;
}

export class KvCache {
  readonly shape: Readonly<KvCacheShape>;
  readonly #pool: BlockPool;
  readonly #tree: RadixTree;
  readonly #held: Int32Array;
  #rowBlocks = 0;
  #evicted: number[] = [];
  readonly #publicPrefixes: (readonly number[])[] = [];
  readonly #listener: StoreListener | undefined;
  #queryTokens = 0;
  #hitTokens = 0;

  constructor(shape: KvCacheShape, listener?: StoreListener) {
    for (const [name, least] of [
      ['blockTokens', 2],
      ['budgetBlocks', 1],
      ['storeBlocks', 0],
      ['rowCount', 1],
    ] as const) {
      if (!Number.isInteger(shape[name]) || shape[name] < least)
        throw new RangeError(`${name} must be a whole number of at least ${least}, not ${shape[name]}.`);
    }
    this.shape = { ...shape };
    this.#pool = new BlockPool(shape.storeBlocks);
    this.#tree = new RadixTree(shape.blockTokens, this.#pool);
    this.#held = new Int32Array(shape.rowCount);
    this.#listener = listener;
  }

  get freeBlocks(): number {
    return this.shape.budgetBlocks - this.#rowBlocks - this.#tree.storedCount;
  }

  /** Blocks that a row could get now: the free ones and those that may be evicted for it. */
  get roomBlocks(): number {
    return this.freeBlocks + this.#tree.evictableCount;
  }

  usage(): KvUsage {
    return {
      budgetBlocks: this.shape.budgetBlocks,
      rowBlocks: this.#rowBlocks,
      freeBlocks: this.freeBlocks,
      evictableBlocks: this.#tree.evictableCount,
      protectedBlocks: this.#tree.protectedCount,
      queryTokens: this.#queryTokens,
      hitTokens: this.#hitTokens,
    };
  }

  /** Blocks that hold this many tokens. */
  blocksFor(tokenCount: number): number {
    return Math.ceil(tokenCount / this.shape.blockTokens);
  }

  /** Lets every tenant share the whole blocks of this prefix. Only for text that the operator knows to be nobody's secret. */
  approvePublicPrefix(tokenIds: readonly number[]): void {
    const whole = tokenIds.slice(0, tokenIds.length - (tokenIds.length % this.shape.blockTokens));
    if (whole.length > 0) this.#publicPrefixes.push(whole);
  }

  /** Where a tenant's tokens are looked up and stored. */
  space(tenant: string, tokenIds: readonly number[]): PrefixSpace {
    let publicTokens = 0;
    for (const prefix of this.#publicPrefixes) {
      if (prefix.length <= publicTokens || prefix.length > tokenIds.length) continue;
      if (prefix.every((tokenId, i) => tokenId === tokenIds[i])) publicTokens = prefix.length;
    }
    return { tenant, publicBlocks: publicTokens / this.shape.blockTokens };
  }

  /** The longest stored path of the tokens whose blocks satisfy the demand, at most `blockLimit` blocks. Changes nothing. */
  match(query: { space: PrefixSpace; tokenIds: readonly number[]; blockLimit: number; demand: OriginDemand }): PrefixHandle {
    const { space, tokenIds, demand } = query;
    const { blockTokens } = this.shape;
    const limit = Math.min(query.blockLimit, Math.floor(tokenIds.length / blockTokens));
    const tenant = this.#tree.namespace(space.tenant);
    const blockIds: number[] = [];
    let prefilledBlocks = 0;
    let parent = NO_BLOCK;
    for (let block = 0; block < limit; block += 1) {
      const namespace = block < space.publicBlocks ? PUBLIC_NAMESPACE : tenant;
      if (namespace === undefined) break;
      const id = this.#tree.find(parent, namespace, tokenIds, block * blockTokens);
      if (id === NO_BLOCK) break;
      const origin = this.#tree.origin(id);
      if (!satisfies(origin, (block + 1) * blockTokens, demand)) break;
      if (origin === PREFILLED && prefilledBlocks === block) prefilledBlocks += 1;
      blockIds.push(id);
      parent = id;
    }
    return { blockIds, prefilledTokens: prefilledBlocks * blockTokens };
  }

  /** The first blocks of a handle that is not locked. */
  shorten(handle: PrefixHandle, blockCount: number): PrefixHandle {
    if (blockCount >= handle.blockIds.length) return handle;
    return {
      blockIds: handle.blockIds.slice(0, blockCount),
      prefilledTokens: Math.min(handle.prefilledTokens, blockCount * this.shape.blockTokens),
    };
  }

  lock(handle: PrefixHandle): void {
    this.#tree.lock(handle.blockIds.at(-1) ?? NO_BLOCK);
  }

  unlock(handle: PrefixHandle): void {
    this.#tree.unlock(handle.blockIds.at(-1) ?? NO_BLOCK);
  }

  /** Counts a look-up that is used: of `queryTokens` tokens `hitTokens` need no computing. */
  countUse(queryTokens: number, hitTokens: number): void {
    this.#queryTokens += queryTokens;
    this.#hitTokens += hitTokens;
  }

  heldBlocks(row: number): number {
    return this.#held[row]!;
  }

  /** Makes a row hold at least this many blocks, evicting for it; false, and nothing changed, when there is no room. */
  growRow(row: number, blockCount: number): boolean {
    const wanted = blockCount - this.#held[row]!;
    if (wanted <= 0) return true;
    if (wanted > this.roomBlocks) return false;
    while (this.freeBlocks < wanted) this.#evict();
    this.#held[row]! += wanted;
    this.#rowBlocks += wanted;
    return true;
  }

  /** Gives all blocks of a row back. */
  freeRow(row: number): void {
    this.#rowBlocks -= this.#held[row]!;
    this.#held[row] = 0;
  }

  /** A row's content goes to another row, which held nothing. */
  moveRow(from: number, to: number): void {
    if (this.#held[to] !== 0) throw new Error(`Row ${to} is held and cannot take the content of row ${from}.`);
    this.#held[to] = this.#held[from]!;
    this.#held[from] = 0;
  }

  /**
   * Stores the whole blocks of a row, as far as the budget allows, and adds the copies to `saves`. A block that is stored already is
   * not stored twice; when the row's is prefilled and the stored one is not, the row's takes its place.
   */
  save(request: SaveRequest, saves: BlockCopy[]): void {
    const { space, tokenIds, row, prefilledTokens, tailOrigin } = request;
    const { blockTokens } = this.shape;
    const blockCount = Math.floor(Math.min(request.tokenCount, tokenIds.length) / blockTokens);
    if (blockCount === 0) return;
    const path: number[] = [];
    let run: { row: number; firstBlock: number; blockIds: number[] } | undefined;
    let parent = NO_BLOCK;
    for (let block = 0; block < blockCount; block += 1) {
      const isPublic = block < space.publicBlocks;
      const offset = block * blockTokens;
      const origin = offset + blockTokens <= prefilledTokens ? PREFILLED : tailOrigin;
      const known = isPublic ? PUBLIC_NAMESPACE : this.#tree.namespace(space.tenant);
      let id: number = known === undefined ? NO_BLOCK : this.#tree.find(parent, known, tokenIds, offset);
      let isWritten = false;
      if (id === NO_BLOCK) {
        // The path so far is locked, so that making room cannot take it.
        const fresh = this.#acquire();
        if (fresh === undefined) break;
        // Opened only now: making room may have emptied, and so closed, the tenant's namespace.
        const namespace = isPublic ? PUBLIC_NAMESPACE : this.#tree.openNamespace(space.tenant);
        this.#tree.insertLocked(fresh, parent, { namespace, tokenIds, offset, origin });
        id = fresh;
        isWritten = true;
      } else {
        this.#tree.lockNext(id);
        if (origin === PREFILLED && this.#tree.origin(id) !== PREFILLED) {
          this.#tree.setOrigin(id, PREFILLED);
          isWritten = true;
        }
      }
      path.push(id);
      parent = id;
      if (!isWritten) {
        run = undefined;
      } else if (run === undefined) {
        run = { row, firstBlock: block, blockIds: [id] };
        saves.push(run);
      } else {
        run.blockIds.push(id);
      }
    }
    this.#tree.unlock(parent);
    if (this.#listener !== undefined && path.length > 0) this.#listener.stored({ owner: request.owner, space, blockIds: path });
  }

  /** Ids evicted since the last call that hold nothing new: their memory may go. */
  takeEvicted(): number[] {
    if (this.#evicted.length === 0) return [];
    const free = new Set<number>();
    for (const id of this.#evicted) {
      if (this.#pool.referenceCount(id) === 0) free.add(id);
    }
    this.#evicted = [];
    return [...free];
  }

  /** The tokens from the start of a stored path to the end of this block. */
  pathTokenIds(blockId: number): number[] {
    if (this.#pool.referenceCount(blockId) === 0) throw new Error(`Block ${blockId} is not stored.`);
    return this.#tree.pathTokenIds(blockId);
  }

  /** Throws when the accounting identity or a part of the store is broken. */
  check(): void {
    this.#pool.check();
    this.#tree.check();
    let held = 0;
    for (const blocks of this.#held) held += blocks;
    if (held !== this.#rowBlocks) throw new Error(`KV cache: rows hold ${held} blocks, counted ${this.#rowBlocks}.`);
    if (this.#pool.usedCount !== this.#tree.storedCount) throw new Error('KV cache: the pool and the tree count different blocks.');
    const { freeBlocks, evictableBlocks, protectedBlocks } = this.usage();
    if (freeBlocks < 0) throw new Error(`KV cache: ${-freeBlocks} blocks over the budget.`);
    if (held + evictableBlocks + protectedBlocks + freeBlocks !== this.shape.budgetBlocks)
      throw new Error('KV cache: held, evictable, protected and free blocks do not add up to the budget.');
  }

  #acquire(): number | undefined {
    if (this.freeBlocks <= 0 || this.#pool.freeCount === 0) {
      if (!this.#evict()) return undefined;
    }
    return this.#pool.acquire();
  }

  #evict(): boolean {
    const id = this.#tree.evict();
    if (id === undefined) return false;
    this.#evicted.push(id);
    this.#listener?.evicted(id);
    return true;
  }
}
