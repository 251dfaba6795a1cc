/**
 * BlockPool: the block ids of the store, each with a reference count, and the ids that are free.
 * Guarantee: an id is either free or referenced, never both, and no id is handed out twice before it came back.
 */
export class BlockPool {
  readonly capacity: number;
  /** References by id; grown as ids are first used, so that a large pool that stays empty costs nothing. */
  #references = new Uint32Array(0);
  /** Ids that came back, last in first out: their memory is the likeliest to be warm. */
  readonly #returned: number[] = [];
  /** Ids from here on were never handed out. */
  #fresh = 0;

  constructor(capacity: number) {
    if (!Number.isInteger(capacity) || capacity < 0)
      throw new RangeError(`A block pool's capacity must be a whole number of at least 0, not ${capacity}.`);
    this.capacity = capacity;
  }

  get usedCount(): number {
    return this.#fresh - this.#returned.length;
  }

  get freeCount(): number {
    return this.capacity - this.usedCount;
  }

  /** A free id with one reference, or undefined when none is left. */
  acquire(): number | undefined {
    let id = this.#returned.pop();
    if (id === undefined) {
      if (this.#fresh === this.capacity) return undefined;
      id = this.#fresh;
      this.#fresh += 1;
      if (id >= this.#references.length) this.#enlarge(id + 1);
    }
    this.#references[id] = 1;
    return id;
  }

  /** One reference more; returns the new count. */
  retain(id: number): number {
    const count = this.referenceCount(id);
    if (count === 0) throw new Error(`Block ${id} is free and cannot be retained.`);
    this.#references[id] = count + 1;
    return count + 1;
  }

  /** One reference less; returns the new count. At 0 the id is free again. */
  release(id: number): number {
    const count = this.referenceCount(id);
    if (count === 0) throw new Error(`Block ${id} is free and cannot be released.`);
    this.#references[id] = count - 1;
    if (count === 1) this.#returned.push(id);
    return count - 1;
  }

  referenceCount(id: number): number {
    return this.#references[id] ?? 0;
  }

  /** Throws when an id is lost or free twice. */
  check(): void {
    const free = new Set(this.#returned);
    if (free.size !== this.#returned.length) throw new Error('Block pool: an id is free twice.');
    for (let id = 0; id < this.#fresh; id += 1) {
      if ((this.referenceCount(id) === 0) !== free.has(id))
        throw new Error(`Block pool: id ${id} has ${this.referenceCount(id)} references and is ${free.has(id) ? '' : 'not '}free.`);
    }
    if (this.usedCount + this.freeCount !== this.capacity) throw new Error('Block pool: used and free ids do not add up.');
  }

  #enlarge(atLeast: number): void {
    const larger = new Uint32Array(Math.min(this.capacity, Math.max(atLeast, 64, this.#references.length * 2)));
    larger.set(this.#references);
    this.#references = larger;
  }
}
