/**
 * ChunkCost: how long a prefill chunk takes on this host, by its length and by where in its sequence it starts, learned from recent chunks.
 *
 *   ms = once + token · n + reread · start + pair · n · (start + n / 2)
 *
 * for a chunk of n tokens: a part that every run has; the matrices, by token; keys and values of the past, which every chunk reads again; and
 * attention, by pair of tokens. At 4,000 tokens of past a token costs nearly three times what it costs at the start (measured), so a size that
 * ignores the start breaks any bound on a chunk's time.
 *
 * The four are fitted by least squares of the relative error, none below zero, drawn a little to the shape that was measured on the default model:
 * so one chunk is enough for a first estimate, and what recent chunks say nothing about (all short, or all at the start) stays plausible.
 */

/** Work that lies this far back counts 1/e. */
const WINDOW_MS = 5_000;
/** Each part in units of one token's matrices, as measured on the default model (135M). */
const SHAPE: Parts = [2, 1, 0.001, 0.0005];
/** Weight of the shape, where that of one chunk is 1. */
const SHAPE_WEIGHT = 0.02;
/** Most rounds of the fit, which starts from the last one's result and ends when a round changes next to nothing. */
const ROUNDS = 40;
const SETTLED = 1e-7;

/** once, token, reread, pair. */
type Parts = readonly [number, number, number, number];
const PART_INDEXES = [0, 1, 2, 3] as const;

export interface ChunkSize {
  /** Tokens of the sequence before it. */
  start: number;
  tokens: number;
}

export class ChunkCost {
  /** Decaying sums over chunks of x xᵀ / ms² and x / ms, where x are the factors of the four parts. */
  readonly #squares = PART_INDEXES.map(() => [0, 0, 0, 0] as [number, number, number, number]);
  readonly #sums: [number, number, number, number] = [0, 0, 0, 0];
  /** Of each part, how many times the shape's. */
  #multiples: Parts = [1, 1, 1, 1];
  /** Milliseconds; undefined until the first chunk. */
  #parts: Parts | undefined;

  observe(chunk: ChunkSize, ms: number): void {
    if (!(ms > 0)) return;
    const kept = Math.exp(-ms / WINDOW_MS);
    const factors = factorsOf(chunk);
    for (const i of PART_INDEXES) {
      this.#sums[i] = this.#sums[i] * kept + factors[i] / ms;
      for (const j of PART_INDEXES) this.#squares[i]![j] = this.#squares[i]![j] * kept + (factors[i] * factors[j]) / (ms * ms);
    }
    this.#fit();
  }

  /** Undefined until the first chunk. */
  msOf(chunk: ChunkSize): number | undefined {
    if (this.#parts === undefined) return undefined;
    const factors = factorsOf(chunk);
    return this.#parts.reduce((sum, part, i) => sum + part * factors[i]!, 0);
  }

  /** Tokens of a chunk from `start` that takes so long, not rounded; 0 where none does; undefined until the first chunk. */
  tokensWithin(ms: number, start: number): number | undefined {
    if (this.#parts === undefined) return undefined;
    const [once, token, reread, pair] = this.#parts;
    const rest = ms - once - reread * start;
    if (rest <= 0) return 0;
    const linear = token + pair * start;
    // The positive root of pair/2 n² + linear n = rest, in the form that holds for no pair part too.
    return (2 * rest) / (linear + Math.sqrt(linear * linear + 2 * pair * rest));
  }

  /** Of one more token in a large chunk; undefined until the first chunk. */
  msPerTokenAt(position: number): number | undefined {
    return this.#parts && this.#parts[1] + this.#parts[3] * position;
  }

  /** By coordinate descent on the multiples of the shape, each held at or above zero. */
  #fit(): void {
    let shapeSum = 0;
    let shapeSquare = 0;
    for (const i of PART_INDEXES) {
      shapeSum += SHAPE[i] * this.#sums[i];
      for (const j of PART_INDEXES) shapeSquare += SHAPE[i] * SHAPE[j] * this.#squares[i]![j];
    }
    const scale = shapeSum / shapeSquare;
    const unit = SHAPE.map(part => part * scale) as unknown as Parts;
    // The normal equations of the multiples, which every round goes through: each row's other coefficients, then what the row is divided by.
    const [a, b, c, d] = PART_INDEXES.map(i => PART_INDEXES.map(j => unit[i] * unit[j] * this.#squares[i]![j])) as unknown as [
      Parts,
      Parts,
      Parts,
      Parts,
    ];
    const wanted = PART_INDEXES.map(i => unit[i] * this.#sums[i] + SHAPE_WEIGHT) as unknown as Parts;
    const over = [a[0] + SHAPE_WEIGHT, b[1] + SHAPE_WEIGHT, c[2] + SHAPE_WEIGHT, d[3] + SHAPE_WEIGHT];
    let [once, token, reread, pair] = this.#multiples;
    for (let round = 0, moved = 1; round < ROUNDS && moved > SETTLED; round++) {
      const before = [once, token, reread, pair] as const;
      once = Math.max(0, (wanted[0] - a[1] * token - a[2] * reread - a[3] * pair) / over[0]!);
      token = Math.max(0, (wanted[1] - b[0] * once - b[2] * reread - b[3] * pair) / over[1]!);
      reread = Math.max(0, (wanted[2] - c[0] * once - c[1] * token - c[3] * pair) / over[2]!);
      pair = Math.max(0, (wanted[3] - d[0] * once - d[1] * token - d[2] * reread) / over[3]!);
      moved = Math.abs(once - before[0]) + Math.abs(token - before[1]) + Math.abs(reread - before[2]) + Math.abs(pair - before[3]);
    }
    this.#multiples = [once, token, reread, pair];
    this.#parts = [unit[0] * once, unit[1] * token, unit[2] * reread, unit[3] * pair];
  }
}

function factorsOf({ start, tokens }: ChunkSize): Parts {
  return [1, tokens, start, tokens * (start + tokens / 2)];
}
