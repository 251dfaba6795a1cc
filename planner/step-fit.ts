/**
 * StepFit: what a batcher's steps take beyond its engine's own times, and how fast its host was, told from a log of them while the whole product served:
 * nothing is fitted to how long requests took, only to the steps themselves.
 */
import type { StepRecord } from '../batcher/step-log.ts';
import type { PathCosts } from './service-curves.ts';
import type { SimulatedEngine } from './simulated-engine.ts';

export type StepCosts = Pick<PathCosts, 'steps' | 'prefillShare' | 'requestMs'> & { copyMsPerToken: number };

/** Of steps of so many rows that nothing else was in; fewer say too little. */
const LEAST_STEPS = 24;
/** One hiccup of the machine in so many steps is not what a step takes. */
const TRIMMED_SHARE = 0.02;

/**
 * `engine` has the times of the engine alone. The mean of the steps counts, not their median: it is what many of them take together. Where there is
 * nothing of a kind, it is as the engine alone has it.
 */
export function fitSteps(records: readonly StepRecord[], engine: SimulatedEngine): StepCosts {
  const copyMsPerToken = slope(records.map(record => [record.copiedTokens, record.stepMs - record.engineMs]));
  const copyMs = (record: StepRecord) => copyMsPerToken * record.copiedTokens;
  const decodeMs = ({ rows, contextTokens }: StepRecord) => engine.decodeMs(rows, contextTokens);

  const extras = new Map<number, number[]>();
  for (const record of records) {
    if (record.rows === 0 || record.chunks.length > 0) continue;
    const own = extras.get(record.rows) ?? [];
    own.push(record.stepMs - copyMs(record) - decodeMs(record));
    extras.set(record.rows, own);
  }
  const steps = [...extras]
    .filter(([, own]) => own.length >= LEAST_STEPS)
    .sort(([a], [b]) => a - b)
    .map(([rows, own]) => ({ rows, extraMs: trimmedMean(own) }));

  const shareOf = (isBeside: boolean) => {
    let [ms, aloneMs] = [0, 0];
    for (const { rows, chunks } of records) {
      if (rows > 0 !== isBeside) continue;
      for (const chunk of chunks) {
        ms += chunk.ms;
        aloneMs += engine.prefillMs(chunk.start, chunk.tokens);
      }
    }
    return aloneMs > 0 ? ms / aloneMs : undefined;
  };
  const beside = shareOf(true) ?? 1;
  const prefillShare = { alone: shareOf(false) ?? beside, beside };
  return { steps, prefillShare, copyMsPerToken, requestMs: requestMs(records, copyMs) };
}

/** How many times as long these steps took, all together, as on a host that always is as fast as when the curves of `engine` were measured. */
export function paceOf(records: readonly StepRecord[], engine: SimulatedEngine): number {
  let [ms, expectedMs] = [0, 0];
  for (const { stepMs, chunks, rows, contextTokens, copiedTokens, admitted } of records) {
    ms += stepMs;
    expectedMs += engine.copyMs(copiedTokens) + admitted * engine.requestMs;
    for (const { start, tokens } of chunks) expectedMs += engine.prefillMs(start, tokens, rows > 0);
    if (rows > 0) expectedMs += engine.decodeMs(rows, contextTokens);
  }
  return expectedMs > 0 ? ms / expectedMs : 1;
}

/** Steps with a prompt in them take longer outside the engine than the others; what is theirs is shared by the requests that were let in. */
function requestMs(records: readonly StepRecord[], copyMs: (record: StepRecord) => number): number {
  const outside = (record: StepRecord) => record.stepMs - record.engineMs - copyMs(record);
  const admitted = records.reduce((sum, record) => sum + record.admitted, 0);
  if (admitted === 0) return 0;
  const usual = new Map<number, { sum: number; count: number }>();
  for (const record of records) {
    if (record.chunks.length > 0 || record.admitted > 0) continue;
    const own = usual.get(record.rows) ?? { sum: 0, count: 0 };
    usual.set(record.rows, { sum: own.sum + outside(record), count: own.count + 1 });
  }
  let extra = 0;
  for (const record of records) {
    if (record.chunks.length === 0 && record.admitted === 0) continue;
    const own = usual.get(record.rows);
    extra += outside(record) - (record.rows === 0 || own === undefined ? 0 : own.sum / own.count);
  }
  return Math.max(0, extra / admitted);
}

/** Least squares; never below zero. */
function slope(points: readonly (readonly [x: number, y: number])[]): number {
  const n = points.length;
  let [x, y, xx, xy] = [0, 0, 0, 0];
  for (const [a, b] of points) {
    x += a;
    y += b;
    xx += a * a;
    xy += a * b;
  }
  const spread = n * xx - x * x;
  return spread > 0 ? Math.max(0, (n * xy - x * y) / spread) : 0;
}

/** Without the longest. */
function trimmedMean(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const kept = sorted.slice(0, Math.max(1, Math.ceil(sorted.length * (1 - TRIMMED_SHARE))));
  return kept.reduce((sum, value) => sum + value, 0) / kept.length;
}
