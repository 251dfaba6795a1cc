/**
 * SlidingWindow: how much was let through during the last minute, kept by the second in which it was let through.
 * Guarantee: `total(now)` is never less than what any minute that ends now holds, so a total that stays within a limit keeps every
 * minute within it. (A bucket that refills lets twice its limit through in one minute: a full one at once, another while it refills.)
 *
 *      held   reserved by requests that still run; stays until they end, however long that takes
 *      spent  what ended requests used, counted from when they were let in, for one minute
 */
export const WINDOW_MS = 60_000;
const SLOT_MS = 1_000;

export class SlidingWindow {
  readonly #held = new Map<number, number>();
  readonly #spent = new Map<number, number>();
  #heldTotal = 0;
  #spentTotal = 0;
  #expiredSlot = Number.NEGATIVE_INFINITY;

  /** What counts at this moment. */
  total(now: number): number {
    this.#expire(now);
    return this.#heldTotal + this.#spentTotal;
  }

  hold(amount: number, at: number): void {
    if (amount === 0) return;
    add(this.#held, slotOf(at), amount);
    this.#heldTotal += amount;
  }

  /** Takes back what was held at `at`. */
  release(amount: number, at: number): void {
    if (amount === 0) return;
    add(this.#held, slotOf(at), -amount);
    this.#heldTotal -= amount;
  }

  /** Counts what was let in at `at`; for nothing when that is over a minute ago. */
  spend(amount: number, at: number, now: number): void {
    this.#expire(now);
    if (amount === 0 || isOver(slotOf(at), now)) return;
    add(this.#spent, slotOf(at), amount);
    this.#spentTotal += amount;
  }

  /** Takes back what was spent at `at`. */
  refund(amount: number, at: number, now: number): void {
    this.#expire(now);
    if (amount === 0 || isOver(slotOf(at), now)) return;
    add(this.#spent, slotOf(at), -amount);
    this.#spentTotal -= amount;
  }

  /**
   * When `amount` more will fit under the limit if nothing else comes: now, or the end of the second that makes room.
   * What is held counts as if it ended with its minute. Undefined when it can never fit.
   */
  fitsAt(amount: number, limit: number, now: number): number | undefined {
    let total = this.total(now);
    if (total + amount <= limit) return now;
    if (amount > limit) return undefined;
    const slots = new Set([...this.#held.keys(), ...this.#spent.keys()]);
    for (const slot of [...slots].sort((a, b) => a - b)) {
      total -= (this.#held.get(slot) ?? 0) + (this.#spent.get(slot) ?? 0);
      // A request that has run for longer than its minute may end at any time.
      if (total + amount <= limit) return Math.max(endOf(slot), now + SLOT_MS);
    }
    return undefined;
  }

  /** What is spent, which nothing but time takes away, and when the first of it goes; undefined when nothing is. */
  firm(now: number): { total: number; until: number } | undefined {
    this.#expire(now);
    if (this.#spent.size === 0) return undefined;
    return { total: this.#spentTotal, until: endOf(Math.min(...this.#spent.keys())) };
  }

  /** When nothing of it counts any more, if nothing else comes; now when nothing does. */
  emptyAt(now: number): number {
    this.#expire(now);
    let last = now;
    for (const slot of this.#spent.keys()) last = Math.max(last, endOf(slot));
    for (const slot of this.#held.keys()) last = Math.max(last, endOf(slot), now + SLOT_MS);
    return last;
  }

  /** Throws when the sums do not add up. */
  check(): void {
    for (const [map, total] of [
      [this.#held, this.#heldTotal],
      [this.#spent, this.#spentTotal],
    ] as const) {
      const amounts = [...map.values()];
      if (amounts.some(amount => amount < 0)) throw new Error('an amount below zero');
      if (amounts.reduce((sum, amount) => sum + amount, 0) !== total) throw new Error('the total is not the sum of its parts');
    }
    if (this.#spent.size > WINDOW_MS / SLOT_MS + 2) throw new Error('more seconds than a minute has');
  }

  #expire(now: number): void {
    const slot = slotOf(now);
    if (slot === this.#expiredSlot) return;
    this.#expiredSlot = slot;
    for (const [spentSlot, amount] of this.#spent) {
      if (!isOver(spentSlot, now)) continue;
      this.#spent.delete(spentSlot);
      this.#spentTotal -= amount;
    }
  }
}

function slotOf(at: number): number {
  return Math.floor(at / SLOT_MS);
}

/** From here on even the last moment of the second is a whole minute ago. */
function endOf(slot: number): number {
  return (slot + 1) * SLOT_MS + WINDOW_MS;
}

function isOver(slot: number, now: number): boolean {
  return endOf(slot) <= now;
}

function add(map: Map<number, number>, slot: number, amount: number): void {
  const sum = (map.get(slot) ?? 0) + amount;
  if (sum === 0) map.delete(slot);
  else map.set(slot, sum);
}
