/** HeldRequests: how many requests wait for a batcher of their model to come, by the model as their clients said it. */

const DEFAULT_ALIAS = 'default';

/** By asked name. Plain data, so that the Worker can add up those of all brokers. */
export type HeldCounts = Readonly<Record<string, number>>;

export class HeldRequests {
  readonly #byName = new Map<string, number>();
  #total = 0;

  get count(): number {
    return this.#total;
  }

  get counts(): HeldCounts {
    return Object.fromEntries(this.#byName);
  }

  /** Until what comes of it has come. */
  async during<T>(asked: string, held: () => Promise<T>): Promise<T> {
    this.#add(asked, 1);
    try {
      return await held();
    } finally {
      this.#add(asked, -1);
    }
  }

  /** A name is a client's: none stays when its last request has gone. */
  #add(asked: string, change: number): void {
    this.#total += change;
    const count = (this.#byName.get(asked) ?? 0) + change;
    if (count > 0) this.#byName.set(asked, count);
    else this.#byName.delete(asked);
  }
}

export function summed(all: readonly HeldCounts[]): HeldCounts {
  const names = new Set(all.flatMap(Object.keys));
  return Object.fromEntries([...names].map(name => [name, all.reduce((sum, counts) => sum + (counts[name] ?? 0), 0)]));
}

/** Those who asked for the model by its name, and those who did not where it may be what they get. */
export function heldFor(model: string, counts: HeldCounts, defaultModel: string | undefined): number {
  const unnamed = defaultModel === undefined || defaultModel === model ? (counts[DEFAULT_ALIAS] ?? 0) : 0;
  return unnamed + (model === DEFAULT_ALIAS ? 0 : (counts[model] ?? 0));
}
