/**
 * BlockOrigin: how the keys and values of a block were computed, as far as their bits can depend on it.
 * Guarantee: two blocks with the same tokens before and in them and the same replayable origin are bitwise equal.
 *
 * Prefill gives the same bits for every chunking (of two tokens or more), one-token decode gives others. So a block is
 * - PREFILLED: everything up to its end came from prefill chunks: its bits depend on the tokens alone;
 * - a number n: the first n tokens came from prefill, all others from decode steps of a reproducible sequence: a sequence with a
 *   prompt of n tokens would compute the very same bits;
 * - MIXED: anything else. Right, but not bit for bit what another order of work would give.
 */
export type BlockOrigin = number;

export const PREFILLED: BlockOrigin = Number.POSITIVE_INFINITY;
export const MIXED: BlockOrigin = -1;

/** Whose blocks a sequence may use: 'any', or only those that a reproducible one with this many prompt tokens would compute itself. */
export type OriginDemand = 'any' | { promptTokens: number };

/** Whether a block that ends before token `endToken` satisfies the demand. */
export function satisfies(origin: BlockOrigin, endToken: number, demand: OriginDemand): boolean {
  if (demand === 'any') return true;
  if (origin === PREFILLED) return endToken <= demand.promptTokens;
  return origin === demand.promptTokens;
}
