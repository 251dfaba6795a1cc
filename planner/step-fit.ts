/**
 * StepFit: what a batcher's steps take beyond its engine's own times, and how fast its host was, told from a log of them while the whole product served:
 * nothing is fitted to how long requests took, only to the steps themselves.
 */
import type { StepRecord } from '../batcher/step-log.ts';
import type { Paces, PathCosts } from './service-curves.ts';
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

  const prefill = prefillPaces(records, engine);
  const beside = prefill.beside ?? 1;
  const prefillShare = { alone: prefill.alone ?? beside, beside };
  return { steps, prefillShare, copyMsPerToken, requestMs: requestMs(records, copyMs) };
}

/** Of a host in these steps, `engine` having the times of its curves, path and all. Where there is nothing of a kind, it is as fast as for the rest. */
export function pacesOf(records: readonly StepRecord[], engine: SimulatedEngine): Paces {
  const prefill = prefillPaces(records, engine);
  const streams = new Pace();
  for (const { stepMs, chunks, rows, contextTokens, copiedTokens, admitted } of records) {
    const restMs = chunks.reduce((left, { ms }) => left - ms, stepMs);
    const decodeMs = rows > 0 ? engine.decodeMs(rows, contextTokens) : 0;
    streams.add(restMs, engine.copyMs(copiedTokens) + admitted * engine.requestMs + decodeMs);
  }
  const beside = prefill.beside ?? streams.ratio ?? 1;
  return { alone: prefill.alone ?? beside, beside, streams: streams.ratio ?? beside };
}

/** Of chunks in steps by themselves, and in those with streams; undefined where there are none. */
function prefillPaces(records: readonly StepRecord[], engine: SimulatedEngine): { alone: number | undefined; beside: number | undefined } {
  const [alone, beside] = [new Pace(), new Pace()];
  for (const { rows, chunks } of records) {
    const isBeside = rows > 0;
    for (const { start, tokens, ms } of chunks) (isBeside ? beside : alone).add(ms, engine.prefillMs(start, tokens, isBeside));
  }
  return { alone: alone.ratio, beside: beside.ratio };
}

class Pace {
  #ms = 0;
  #expectedMs = 0;

  add(ms: number, expectedMs: number): void {
    this.#ms += ms;
    this.#expectedMs += expectedMs;
  }

  get ratio(): number | undefined {
    return this.#expectedMs > 0 ? this.#ms / this.#expectedMs : undefined;
  }
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
