/**
 * LatencyHistogram: how often a time was observed, in buckets of one percent, so that a simulation of millions of tokens needs no list of them.
 * Guarantee: a percentile is off by half a percent at most.
 */

const BUCKETS_PER_E = 100;
/** Everything below is counted as this. */
const LEAST_MS = 0.01;
const LEAST_LOG = Math.log(LEAST_MS);

export class LatencyHistogram {
  #counts = new Float64Array(1_024);
  #total = 0;
  #sumMs = 0;

  get count(): number {
    return this.#total;
  }

  get sumMs(): number {
    return this.#sumMs;
  }

  observe(ms: number, times = 1): void {
    const index = Math.max(0, Math.floor((Math.log(Math.max(ms, LEAST_MS)) - LEAST_LOG) * BUCKETS_PER_E));
    if (index >= this.#counts.length) this.#enlarge(index + 1);
    this.#counts[index]! += times;
    this.#total += times;
    this.#sumMs += ms * times;
  }

  /** Undefined while nothing was observed. `rank` from 0 to 100. */
  percentile(rank: number): number | undefined {
    if (this.#total === 0) return undefined;
    const wanted = Math.max(1, (this.#total * rank) / 100);
    let seen = 0;
    for (let index = 0; index < this.#counts.length; index++) {
      seen += this.#counts[index]!;
      if (seen >= wanted) return Math.exp(LEAST_LOG + (index + 0.5) / BUCKETS_PER_E);
    }
    return undefined;
  }

  /** Plain data, for another thread. */
  data(): { counts: Float64Array; total: number; sumMs: number } {
    return { counts: this.#counts, total: this.#total, sumMs: this.#sumMs };
  }

  merge({ counts, total, sumMs }: ReturnType<LatencyHistogram['data']>): void {
    if (counts.length > this.#counts.length) this.#enlarge(counts.length);
    counts.forEach((count, index) => {
      this.#counts[index]! += count;
    });
    this.#total += total;
    this.#sumMs += sumMs;
  }

  #enlarge(size: number): void {
    const larger = new Float64Array(Math.max(size, this.#counts.length * 2));
    larger.set(this.#counts);
    this.#counts = larger;
  }
}
