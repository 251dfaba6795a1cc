/**
 * TokenCounts: which tokens a sequence holds, as the penalties count them. Depends on the token ids alone, so a sequence that is taken up
 * elsewhere is brought to the same state by adding its tokens again.
 */
export class TokenCounts {
  readonly #slotOf = new Map<number, number>();
  readonly #ids: number[] = [];
  readonly #counts: number[] = [];

  /** Every distinct token, in order of first appearance; counts[i] belongs to ids[i]. */
  get ids(): readonly number[] {
    return this.#ids;
  }

  get counts(): readonly number[] {
    return this.#counts;
  }

  add(tokenId: number): void {
    const slot = this.#slotOf.get(tokenId);
    if (slot === undefined) {
      this.#slotOf.set(tokenId, this.#ids.length);
      this.#ids.push(tokenId);
      this.#counts.push(1);
    } else {
      this.#counts[slot]!++;
    }
  }

  has(tokenId: number): boolean {
    return this.#slotOf.has(tokenId);
  }
}
