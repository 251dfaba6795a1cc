/**
 * chunkSize: how many of a prefill's tokens go in its next chunk.
 * Guarantee: never more than allowed, and never a chunk of one token unless the whole prefill has one (another kernel would compute it,
 * with other bits; design section 3).
 */

/** 0 when nothing sensible fits this time. */
export function chunkSize(remaining: number, allowed: number): number {
  if (remaining <= allowed) return remaining;
  // All but one of the rest would leave a single token for the last chunk.
  const size = remaining - allowed === 1 ? allowed - 1 : allowed;
  return size >= 2 ? size : 0;
}
