/** StepRate: how fast decode steps follow each other, for our engine and for the peers that are driven from here alike. */

/** The first run of a shape plans its memory, and JavaScript is compiled while it runs; programs of the peers' own warm up by themselves. */
const WARM_UP_STEPS = 8;

/** Tokens/s of all rows together; `step` is told its place, which the warm-up counts by itself. */
export async function stepRate(
  { rowCount, stepCount }: { rowCount: number; stepCount: number },
  step: (index: number) => Promise<unknown>,
): Promise<number> {
  for (let index = 0; index < WARM_UP_STEPS; index++) await step(index);
  const startedAt = performance.now();
  for (let index = 0; index < stepCount; index++) await step(index);
  return (rowCount * stepCount * 1000) / (performance.now() - startedAt);
}
