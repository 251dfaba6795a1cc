/**
 * RadixTree: which token blocks the store holds, as a tree in which a block's parent is the block before it.
 * Guarantee: a hit compares every token, stays inside its namespace, and evicting takes the least recently used block that nobody
 * needs, in constant time.
 *
 * A node is a stored block and its number is the block's id, so a node is a column of typed arrays and no object:
 *
 *     find(parent, namespace, tokens) ──hash──▶ bucket ─▶ id ─▶ id ...   compared token by token
 *     root of a namespace = NO_BLOCK; a child may belong to another namespace than its parent (public prefix, then tenant)
 *
 * The recency list holds the unlocked blocks, oldest first. A path is always put to its young end from the deepest block up, so every
 * unlocked block is older than its parent; therefore the oldest one has no child and is the leaf to evict. A locked path is off the
 * list. Locks are the pool's references beyond the tree's own.
 */
import type { BlockOrigin } from './block-origin.ts';
import type { BlockPool } from './block-pool.ts';

export const NO_BLOCK = -1;

/** The namespace every tenant reads; only prefixes that the operator approved are stored in it. */
export const PUBLIC_NAMESPACE = 0;

export class RadixTree {
  readonly blockTokens: number;
  readonly #pool: BlockPool;

  #size = 0;
  #parent = new Int32Array(0);
  #namespaceOf = new Int32Array(0);
  #depth = new Int32Array(0);
  #childCount = new Int32Array(0);
  #origin = new Float64Array(0);
  #older = new Int32Array(0);
  #younger = new Int32Array(0);
  #listed = new Uint8Array(0);
  #hash = new Int32Array(0);
  #nextInBucket = new Int32Array(0);
  #tokens = new Int32Array(0);
  #buckets = new Int32Array(0);

  #oldest = NO_BLOCK;
  #youngest = NO_BLOCK;
  #evictableCount = 0;
  #storedCount = 0;

  readonly #namespaces = new Map<string, number>();
  /** By namespace: its name, and how many blocks it holds; one without blocks is forgotten and its number used again. */
  readonly #names: (string | undefined)[] = [undefined];
  readonly #blocksIn: number[] = [0];
  readonly #freeNamespaces: number[] = [];

  constructor(blockTokens: number, pool: BlockPool) {
    if (!Number.isInteger(blockTokens) || blockTokens < 1) throw new RangeError('A block holds at least one token.');
    this.blockTokens = blockTokens;
    this.#pool = pool;
  }

  get storedCount(): number {
    return this.#storedCount;
  }

  get evictableCount(): number {
    return this.#evictableCount;
  }

  get protectedCount(): number {
    return this.#storedCount - this.#evictableCount;
  }

  /** The number of a namespace, or undefined when nothing is stored for it. */
  namespace(name: string): number | undefined {
    return this.#namespaces.get(name);
  }

  /** The number of a namespace, made when there is none; the caller stores a block in it at once. */
  openNamespace(name: string): number {
    const known = this.#namespaces.get(name);
    if (known !== undefined) return known;
    const number = this.#freeNamespaces.pop() ?? this.#names.length;
    this.#names[number] = name;
    this.#blocksIn[number] = 0;
    this.#namespaces.set(name, number);
    return number;
  }

  /** The child of `parent` in `namespace` that holds tokenIds[offset] and the following ones, or NO_BLOCK. */
  find(parent: number, namespace: number, tokenIds: readonly number[], offset: number): number {
    if (this.#storedCount === 0) return NO_BLOCK;
    const hash = this.#hashOf(parent, namespace, tokenIds, offset);
    let id = this.#buckets[hash & (this.#buckets.length - 1)]!;
    while (id !== NO_BLOCK) {
      if (
        this.#hash[id] === hash &&
        this.#parent[id] === parent &&
        this.#namespaceOf[id] === namespace &&
        this.#equals(id, tokenIds, offset)
      )
        return id;
      id = this.#nextInBucket[id]!;
    }
    return NO_BLOCK;
  }

  /**
   * Adds a block whose id the caller acquired from the pool; that reference becomes the tree's. The block starts with one lock:
   * the caller owns it together with the lock on the parent's path, and unlocks the deepest block once.
   */
  insertLocked(
    id: number,
    parent: number,
    block: { namespace: number; tokenIds: readonly number[]; offset: number; origin: BlockOrigin },
  ): void {
    if (id >= this.#size) this.#enlarge(id + 1);
    const { namespace, tokenIds, offset } = block;
    this.#parent[id] = parent;
    this.#namespaceOf[id] = namespace;
    this.#depth[id] = parent === NO_BLOCK ? 1 : this.#depth[parent]! + 1;
    this.#childCount[id] = 0;
    this.#origin[id] = block.origin;
    this.#listed[id] = 0;
    for (let i = 0; i < this.blockTokens; i += 1) this.#tokens[id * this.blockTokens + i] = tokenIds[offset + i]!;
    this.#hash[id] = this.#hashOf(parent, namespace, tokenIds, offset);
    this.#link(id);
    if (parent !== NO_BLOCK) this.#childCount[parent]! += 1;
    this.#blocksIn[namespace]! += 1;
    this.#storedCount += 1;
    this.#pool.retain(id);
  }

  /** Protects a block and all before it from eviction, until unlock is called as often. */
  lock(deepest: number): void {
    for (let id = deepest; id !== NO_BLOCK; id = this.#parent[id]!) this.lockNext(id);
  }

  /** Extends a lock that ends at this block's parent by the block. */
  lockNext(id: number): void {
    if (this.#pool.retain(id) === 2 && this.#listed[id] === 1) this.#unlist(id);
  }

  /** Takes a lock back; blocks without one become the most recently used. */
  unlock(deepest: number): void {
    for (let id = deepest; id !== NO_BLOCK; id = this.#parent[id]!) {
      if (this.#pool.release(id) === 1) this.#list(id);
    }
  }

  /** Removes the least recently used unlocked leaf, whose id is free thereafter; undefined when every block is locked. */
  evict(): number | undefined {
    const id = this.#oldest;
    if (id === NO_BLOCK) return undefined;
    this.#unlist(id);
    this.#unlink(id);
    const parent = this.#parent[id]!;
    if (parent !== NO_BLOCK) this.#childCount[parent]! -= 1;
    const namespace = this.#namespaceOf[id]!;
    this.#blocksIn[namespace]! -= 1;
    this.#storedCount -= 1;
    this.#pool.release(id);
    this.#closeIfEmpty(namespace);
    return id;
  }

  origin(id: number): BlockOrigin {
    return this.#origin[id]!;
  }

  setOrigin(id: number, origin: BlockOrigin): void {
    this.#origin[id] = origin;
  }

  /** Number of blocks from the root to this one, itself included. */
  depth(id: number): number {
    return this.#depth[id]!;
  }

  /** All tokens from the root to the end of this block. */
  pathTokenIds(id: number): number[] {
    const tokenIds = new Array<number>(this.depth(id) * this.blockTokens);
    for (let block = id; block !== NO_BLOCK; block = this.#parent[block]!) {
      const to = (this.#depth[block]! - 1) * this.blockTokens;
      for (let i = 0; i < this.blockTokens; i += 1) tokenIds[to + i] = this.#tokens[block * this.blockTokens + i]!;
    }
    return tokenIds;
  }

  /** Throws when a count, a link or the recency order is wrong. Walks everything. */
  check(): void {
    const listed = new Map<number, number>();
    let position = 0;
    let before = NO_BLOCK;
    for (let id = this.#oldest; id !== NO_BLOCK; id = this.#younger[id]!) {
      if (this.#older[id] !== before) throw new Error(`Radix tree: block ${id} has a broken recency link.`);
      if (listed.has(id)) throw new Error(`Radix tree: block ${id} is listed twice.`);
      listed.set(id, position);
      position += 1;
      before = id;
    }
    if (before !== this.#youngest || listed.size !== this.#evictableCount)
      throw new Error('Radix tree: the recency list and its count differ.');
    const children = new Map<number, number>();
    const inNamespace = new Map<number, number>();
    const seen = new Set<number>();
    for (const head of this.#buckets) {
      for (let id = head; id !== NO_BLOCK; id = this.#nextInBucket[id]!) {
        if (seen.has(id)) throw new Error(`Radix tree: block ${id} is in two buckets.`);
        seen.add(id);
      }
    }
    if (seen.size !== this.#storedCount) throw new Error('Radix tree: the hash table and the count of blocks differ.');
    for (const id of seen) {
      const parent = this.#parent[id]!;
      const references = this.#pool.referenceCount(id);
      if (references < 1) throw new Error(`Radix tree: stored block ${id} is free in the pool.`);
      if ((references === 1) !== listed.has(id))
        throw new Error(`Radix tree: block ${id} has ${references} references but the list disagrees.`);
      if (parent !== NO_BLOCK) {
        if (!seen.has(parent)) throw new Error(`Radix tree: the parent of block ${id} is not stored.`);
        if (this.#depth[id] !== this.#depth[parent]! + 1) throw new Error(`Radix tree: block ${id} has a wrong depth.`);
        if (this.#pool.referenceCount(parent) < references)
          throw new Error(`Radix tree: block ${id} is locked more often than its parent.`);
        children.set(parent, (children.get(parent) ?? 0) + 1);
        const age = listed.get(id);
        const parentAge = listed.get(parent);
        if (age !== undefined && parentAge !== undefined && age >= parentAge)
          throw new Error(`Radix tree: block ${id} is younger than its parent.`);
      }
      const namespace = this.#namespaceOf[id]!;
      inNamespace.set(namespace, (inNamespace.get(namespace) ?? 0) + 1);
    }
    for (const id of seen) {
      if ((children.get(id) ?? 0) !== this.#childCount[id]) throw new Error(`Radix tree: block ${id} miscounts its children.`);
    }
    for (const [name, number] of this.#namespaces) {
      if (this.#names[number] !== name || (inNamespace.get(number) ?? 0) !== this.#blocksIn[number] || this.#blocksIn[number] === 0)
        throw new Error(`Radix tree: namespace ${name} is miscounted.`);
    }
  }

  /** A whole-number mix over namespace, parent and tokens; only a first guess, every hit is compared. */
  #hashOf(parent: number, namespace: number, tokenIds: readonly number[], offset: number): number {
    let hash = Math.imul(parent + 2, 0x9e3779b1) ^ Math.imul(namespace + 1, 0x85ebca6b);
    for (let i = 0; i < this.blockTokens; i += 1) {
      hash = Math.imul(hash ^ tokenIds[offset + i]!, 0x01000193);
      hash ^= hash >>> 15;
    }
    return hash | 0;
  }

  #equals(id: number, tokenIds: readonly number[], offset: number): boolean {
    const from = id * this.blockTokens;
    for (let i = 0; i < this.blockTokens; i += 1) {
      if (this.#tokens[from + i] !== tokenIds[offset + i]) return false;
    }
    return true;
  }

  #closeIfEmpty(namespace: number): void {
    if (namespace === PUBLIC_NAMESPACE || this.#blocksIn[namespace] !== 0) return;
    this.#namespaces.delete(this.#names[namespace]!);
    this.#names[namespace] = undefined;
    this.#freeNamespaces.push(namespace);
  }

  #link(id: number): void {
    const bucket = this.#hash[id]! & (this.#buckets.length - 1);
    this.#nextInBucket[id] = this.#buckets[bucket]!;
    this.#buckets[bucket] = id;
  }

  #unlink(id: number): void {
    const bucket = this.#hash[id]! & (this.#buckets.length - 1);
    let at = this.#buckets[bucket]!;
    if (at === id) {
      this.#buckets[bucket] = this.#nextInBucket[id]!;
      return;
    }
    while (this.#nextInBucket[at] !== id) at = this.#nextInBucket[at]!;
    this.#nextInBucket[at] = this.#nextInBucket[id]!;
  }

  #list(id: number): void {
    this.#older[id] = this.#youngest;
    this.#younger[id] = NO_BLOCK;
    if (this.#youngest === NO_BLOCK) this.#oldest = id;
    else this.#younger[this.#youngest] = id;
    this.#youngest = id;
    this.#listed[id] = 1;
    this.#evictableCount += 1;
  }

  #unlist(id: number): void {
    const older = this.#older[id]!;
    const younger = this.#younger[id]!;
    if (older === NO_BLOCK) this.#oldest = younger;
    else this.#younger[older] = younger;
    if (younger === NO_BLOCK) this.#youngest = older;
    else this.#older[younger] = older;
    this.#listed[id] = 0;
    this.#evictableCount -= 1;
  }

  /** Columns double, so that a tree costs memory by what it held at most, not by what it might hold. */
  #enlarge(atLeast: number): void {
    const size = Math.max(atLeast, 64, this.#size * 2);
    const widen = (column: Int32Array): Int32Array<ArrayBuffer> => {
      const wider = new Int32Array(size);
      wider.set(column);
      return wider;
    };
    this.#parent = widen(this.#parent);
    this.#namespaceOf = widen(this.#namespaceOf);
    this.#depth = widen(this.#depth);
    this.#childCount = widen(this.#childCount);
    this.#older = widen(this.#older);
    this.#younger = widen(this.#younger);
    this.#hash = widen(this.#hash);
    this.#nextInBucket = widen(this.#nextInBucket);
    const origin = new Float64Array(size);
    origin.set(this.#origin);
    this.#origin = origin;
    const listed = new Uint8Array(size);
    listed.set(this.#listed);
    this.#listed = listed;
    const tokens = new Int32Array(size * this.blockTokens);
    tokens.set(this.#tokens);
    this.#tokens = tokens;
    this.#size = size;
    this.#rehash(size);
  }

  #rehash(size: number): void {
    const stored: number[] = [];
    for (const head of this.#buckets) {
      for (let id = head; id !== NO_BLOCK; id = this.#nextInBucket[id]!) stored.push(id);
    }
    let bucketCount = 64;
    while (bucketCount < size) bucketCount *= 2;
    this.#buckets = new Int32Array(bucketCount).fill(NO_BLOCK);
    for (const id of stored) this.#link(id);
  }
}
