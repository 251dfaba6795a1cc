/**
 * Spread: what repetitions of one measurement gave, as minimum, median and maximum; and percentiles of many observations.
 * Never a mean: one disturbed repetition must not move the figure.
 */

export interface Spread {
  min: number;
  median: number;
  max: number;
  sampleCount: number;
}

/** Throws on an empty list: a figure without a measurement is a bug of the bench. */
export function spreadOf(samples: readonly number[]): Spread {
  return { min: Math.min(...samples), median: percentile(samples, 50), max: Math.max(...samples), sampleCount: samples.length };
}

/** The `rank`th percentile (0 to 100) with linear interpolation between neighbours. */
export function percentile(samples: readonly number[], rank: number): number {
  if (samples.length === 0) throw new Error('percentile of no samples');
  const sorted = samples.toSorted((a, b) => a - b);
  const place = ((sorted.length - 1) * rank) / 100;
  const below = Math.floor(place);
  const low = sorted[below]!;
  return low + (sorted[Math.min(below + 1, sorted.length - 1)]! - low) * (place - below);
}

/** "73.1 (70.2-74.0)": median, then the range; the median alone when there was one repetition. */
export function spreadText(spread: Spread, digits = 1): string {
  const median = spread.median.toFixed(digits);
  return spread.sampleCount === 1 ? median : `${median} (${spread.min.toFixed(digits)}-${spread.max.toFixed(digits)})`;
}
