/** RateLine: the number that a measuring program prints last; what a library prints before it is not looked at. */

/** Throws with the end of the text where that is no rate. */
export function lastRate(stdout: string): number {
  const rate = Number(stdout.trim().split('\n').at(-1));
  if (!(rate > 0 && rate < Number.POSITIVE_INFINITY)) throw new Error(`printed no rate but: ${stdout.slice(-200)}`);
  return rate;
}
