/**
 * Heap: a binary heap whose items know their place, so that any of them can be moved or removed in logarithmic time.
 * Guarantee: `top` is an item that no other comes before.
 */
export interface HeapOrder<T> {
  /** Whether `a` comes before `b`. */
  before(a: T, b: T): boolean;
  /** Reads the place that setPlace wrote; undefined when the item is not in this heap. */
  place(item: T): number | undefined;
  setPlace(item: T, place: number | undefined): void;
}

export class Heap<T> {
  readonly #items: T[] = [];
  readonly #order: HeapOrder<T>;

  constructor(order: HeapOrder<T>) {
    this.#order = order;
  }

  get size(): number {
    return this.#items.length;
  }

  get top(): T | undefined {
    return this.#items[0];
  }

  has(item: T): boolean {
    return this.#order.place(item) !== undefined;
  }

  push(item: T): void {
    this.#items.push(item);
    this.#order.setPlace(item, this.#items.length - 1);
    this.#rise(this.#items.length - 1);
  }

  pop(): T | undefined {
    const top = this.#items[0];
    if (top !== undefined) this.remove(top);
    return top;
  }

  /** Nothing happens when the item is not in the heap. */
  remove(item: T): void {
    const place = this.#order.place(item);
    if (place === undefined) return;
    const last = this.#items.pop()!;
    if (last !== item) {
      this.#items[place] = last;
      this.#order.setPlace(last, place);
      this.#settle(place);
    }
    this.#order.setPlace(item, undefined);
  }

  /** To be called when what the order depends on changed for this item. */
  update(item: T): void {
    const place = this.#order.place(item);
    if (place !== undefined) this.#settle(place);
  }

  check(): void {
    for (let place = 0; place < this.#items.length; place += 1) {
      const item = this.#items[place]!;
      if (this.#order.place(item) !== place) throw new Error('Heap: an item does not know its place.');
      if (place > 0 && this.#order.before(item, this.#items[(place - 1) >> 1]!)) throw new Error('Heap: an item comes before its parent.');
    }
  }

  #settle(place: number): void {
    this.#sink(this.#rise(place));
  }

  #rise(from: number): number {
    const item = this.#items[from]!;
    let place = from;
    while (place > 0) {
      const up = (place - 1) >> 1;
      const parent = this.#items[up]!;
      if (!this.#order.before(item, parent)) break;
      this.#put(parent, place);
      place = up;
    }
    this.#put(item, place);
    return place;
  }

  #sink(from: number): void {
    const item = this.#items[from]!;
    let place = from;
    for (;;) {
      let down = 2 * place + 1;
      if (down >= this.#items.length) break;
      if (down + 1 < this.#items.length && this.#order.before(this.#items[down + 1]!, this.#items[down]!)) down += 1;
      const child = this.#items[down]!;
      if (!this.#order.before(child, item)) break;
      this.#put(child, place);
      place = down;
    }
    this.#put(item, place);
  }

  #put(item: T, place: number): void {
    this.#items[place] = item;
    this.#order.setPlace(item, place);
  }
}
