/**
 * CurveMeasurement: an engine's service curves by the clock: decode steps of several batches at a short and a long context, prefill chunks of several
 * sizes with and without tokens before them, copies. Half a minute on a small host.
 */
import type { Engine } from '../batcher/engine/engine.ts';
import { randomSource } from './random-source.ts';
import type { ServiceCurves } from './service-curves.ts';

export type EngineCurves = Pick<ServiceCurves, 'decode' | 'prefill' | 'prefillPast' | 'copyMsPerToken'>;

export interface MeasurementOptions {
  /** Largest batch, and largest chunk, that will be asked for. */
  maxRunning: number;
  maxBatchedTokens: number;
  progress(line: string): void;
}

const BATCHES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024];
const CHUNKS = [16, 32, 64, 128, 256, 512, 1024, 2048];
/** Of chunks with a past. */
const PAST_CHUNKS = [32, 128];
const SHORT_CONTEXT = 64;
const LONG_CONTEXT = 512;
const PAST_TOKENS = 1024;
/** Of each shape, one in each round over all of them: whatever disturbs the machine for a while then disturbs few runs of each. */
const ROUNDS = 8;
/** A longer run varies less, and costs more: it has no more rounds than this. */
const LONG_RUN_MS = 300;
const LONG_RUN_ROUNDS = 4;
/** Tokens of one chunk while rows are filled. */
const FILL_CHUNK = 128;

export async function measureEngine(engine: Engine, options: MeasurementOptions): Promise<EngineCurves> {
  const { contextTokens, rowCount, vocabSize } = engine.shape;
  const random = randomSource(1);
  const tokens = (count: number) => Array.from({ length: count }, () => Math.floor(random() * vocabSize));
  const maxRows = Math.min(options.maxRunning, rowCount);
  const maxChunk = Math.min(options.maxBatchedTokens, contextTokens);
  const run = (start: number, count: number) => engine.prefill({ row: 0, start, tokenIds: tokens(count), logitCount: 1 });

  options.progress('measuring prefill chunks');
  const chunks = withLast(CHUNKS, maxChunk);
  const prefillMs = await quartiles(chunks.map(count => () => run(0, count)));
  const prefill = chunks.map((count, index) => ({ tokens: count, ms: prefillMs[index]! }));
  const pastTokens = Math.min(PAST_TOKENS, Math.floor((contextTokens - FILL_CHUNK) / FILL_CHUNK) * FILL_CHUNK);
  for (let start = 0; start < pastTokens; start += FILL_CHUNK) await run(start, FILL_CHUNK);
  const pastChunks = prefill.filter(({ tokens }) => PAST_CHUNKS.includes(tokens) && pastTokens > 0);
  const pastMs = await quartiles(pastChunks.map(one => () => run(pastTokens, one.tokens)));
  const pasts = pastChunks.map((one, index) => ({ tokens: one.tokens, extraMs: pastMs[index]! - one.ms }));

  const longContext = Math.min(LONG_CONTEXT, Math.max(SHORT_CONTEXT + 1, pastTokens));
  const copied = performance.now();
  for (let row = 1; row < maxRows; row++) engine.copyRow({ from: 0, to: row, tokens: longContext });
  const copyMsPerToken = maxRows > 1 ? (performance.now() - copied) / ((maxRows - 1) * longContext) : 0;

  options.progress('measuring decode steps');
  const batches = withLast(BATCHES, maxRows);
  const step = (rows: number, position: number) =>
    engine.decode({ tokenIds: tokens(rows), positions: new Array<number>(rows).fill(position) });
  const stepMs = await quartiles(batches.flatMap(rows => [SHORT_CONTEXT, longContext].map(position => () => step(rows, position))));
  const decode = batches.map((rows, index) => {
    const [short, long] = [stepMs[2 * index]!, stepMs[2 * index + 1]!];
    const msPerContextToken = Math.max(0, (long - short) / (rows * (longContext - SHORT_CONTEXT)));
    return { rows, ms: Math.max(0, short - msPerContextToken * rows * SHORT_CONTEXT), msPerContextToken };
  });
  return { decode, prefill, prefillPast: fitPast(pasts, pastTokens), copyMsPerToken };
}

/**
 * Least squares of extra = past · (a + b · tokens) over the chunks, neither part below zero. Exported for its test.
 */
export function fitPast(chunks: readonly { tokens: number; extraMs: number }[], pastTokens: number): ServiceCurves['prefillPast'] {
  if (chunks.length === 0 || pastTokens <= 0) return { msPerPastToken: 0, msPerPair: 0 };
  const sum = (of: (chunk: { tokens: number; extraMs: number }) => number) => chunks.reduce((total, chunk) => total + of(chunk), 0);
  const [n, x, xx] = [chunks.length, sum(one => one.tokens), sum(one => one.tokens ** 2)];
  const [y, xy] = [sum(one => one.extraMs / pastTokens), sum(one => (one.tokens * one.extraMs) / pastTokens)];
  const alone = { past: Math.max(0, y / n), pair: Math.max(0, xy / xx) };
  const determinant = n * xx - x * x;
  if (determinant === 0) return { msPerPastToken: 0, msPerPair: alone.pair };
  const pair = (n * xy - x * y) / determinant;
  const past = (y - pair * x) / n;
  if (pair < 0) return { msPerPastToken: alone.past, msPerPair: 0 };
  return past < 0 ? { msPerPastToken: 0, msPerPair: alone.pair } : { msPerPastToken: past, msPerPair: pair };
}

/** Those below it, and itself. */
function withLast(sizes: readonly number[], last: number): number[] {
  return [...sizes.filter(size => size < last), last];
}

/**
 * Lower quartile of each run over rounds: what disturbs a run makes it longer, never shorter, and what others on these processors cost is measured by
 * itself. The first round plans the runs' memory and counts for nothing.
 */
async function quartiles(runs: readonly (() => Promise<unknown>)[]): Promise<number[]> {
  const samples = runs.map((): number[] => []);
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [index, run] of runs.entries()) {
      const own = samples[index]!;
      if (round > LONG_RUN_ROUNDS && own[0]! > LONG_RUN_MS) continue;
      const startedAt = performance.now();
      await run();
      if (round > 0) own.push(performance.now() - startedAt);
    }
  }
  return samples.map(own => own.sort((a, b) => a - b)[Math.floor((own.length - 1) / 4)]!);
}
