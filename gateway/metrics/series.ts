/**
 * Series: numbers under Prometheus' names (`name{label="value"}`), as they are counted, handed on and printed. What is handed on is taken away
 * here, so that each count is in one place and none is twice in a sum.
 */

export type SeriesEntry = [key: string, value: number];

export type Labels = Readonly<Record<string, string>>;

/** Labels come from the operator's models and from the code; should one not, it cannot fill the memory. */
const MAX_SERIES = 10_000;

export class Series {
  #values = new Map<string, number>();

  add(key: string, value = 1): void {
    const known = this.#values.get(key);
    if (known === undefined && this.#values.size >= MAX_SERIES) return;
    this.#values.set(key, (known ?? 0) + value);
  }

  addAll(entries: readonly SeriesEntry[]): void {
    for (const [key, value] of entries) this.add(key, value);
  }

  entries(): SeriesEntry[] {
    return [...this.#values];
  }

  /** All of it, which is then somebody else's. */
  take(): SeriesEntry[] {
    const entries = this.entries();
    this.#values = new Map();
    return entries;
  }
}

export function seriesKey(name: string, labels: Labels): string {
  const pairs = Object.entries(labels).map(([label, value]) => `${label}="${escaped(value)}"`);
  return pairs.length === 0 ? name : `${name}{${pairs.join(',')}}`;
}

function escaped(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

/** Histograms of one name, by the values of its labels. */
export class Histograms {
  readonly #name: string;
  readonly #bounds: readonly number[];
  readonly #byLabels = new Map<string, { labels: Labels; counts: number[]; sum: number }>();

  /** Upper bounds of the buckets, ascending. */
  constructor(name: string, bounds: readonly number[]) {
    this.#name = name;
    this.#bounds = bounds;
  }

  /** `key` stands for the labels, so that they are written out once only. */
  observe(key: string, labels: () => Labels, value: number): void {
    let one = this.#byLabels.get(key);
    if (one === undefined) {
      if (this.#byLabels.size >= MAX_SERIES) return;
      one = { labels: labels(), counts: Array<number>(this.#bounds.length + 1).fill(0), sum: 0 };
      this.#byLabels.set(key, one);
    }
    let index = 0;
    while (index < this.#bounds.length && value > this.#bounds[index]!) index++;
    one.counts[index]! += 1;
    one.sum += value;
  }

  entries(): SeriesEntry[] {
    return [...this.#byLabels.values()].flatMap(({ labels, counts, sum }) => {
      let total = 0;
      const buckets = counts.map((count, index): SeriesEntry => {
        total += count;
        const le = index < this.#bounds.length ? String(this.#bounds[index]) : '+Inf';
        return [seriesKey(`${this.#name}_bucket`, { ...labels, le }), total];
      });
      return [...buckets, [seriesKey(`${this.#name}_sum`, labels), sum], [seriesKey(`${this.#name}_count`, labels), total]];
    });
  }

  take(): SeriesEntry[] {
    const entries = this.entries();
    this.#byLabels.clear();
    return entries;
  }
}
