/**
 * Knee: the highest rate at which a fleet still keeps its promise to enough of its requests, found by trying; and how many batchers a load needs.
 * Guarantee: the rate that is given was tried and kept it, and the next higher one that was tried did not.
 */

import { SimulatedEngine } from './simulated-engine.ts';
import type { Scenario, Trial, TrialFigures } from './simulation.ts';

export interface KneeParts {
  run(trial: Trial, requestCount?: number): Promise<TrialFigures>;
  /** Share of the requests that must come as promised. */
  target: number;
}

export interface Knee {
  /** Undefined where not even a nearly idle batcher keeps the promise. */
  best: TrialFigures | undefined;
  /** By rate. */
  tried: TrialFigures[];
}

/** Of one round; each splits what is left of the range into one part more. */
const TRIALS_A_ROUND = 4;
const ROUNDS = 4;
/** Of the rate that a batcher can compute at the most. */
const LOWEST_SHARE = 0.02;
const HIGHEST_SHARE = 1.3;

export async function findKnee(
  { run, target }: KneeParts,
  { mostPerBatcher, batcherCount }: { mostPerBatcher: number; batcherCount: number },
): Promise<Knee> {
  const most = mostPerBatcher * batcherCount;
  const lowest = await run({ rate: most * LOWEST_SHARE, batcherCount });
  if (lowest.attainment < target) return { best: undefined, tried: [lowest] };
  const tried = [lowest];
  let [low, high] = [lowest.rate, most * HIGHEST_SHARE];
  for (let round = 0; round < ROUNDS; round++) {
    const rates = Array.from({ length: TRIALS_A_ROUND }, (_, index) => low + ((high - low) * (index + 1)) / (TRIALS_A_ROUND + 1));
    const trials = await Promise.all(rates.map(rate => run({ rate, batcherCount })));
    tried.push(...trials);
    const failed = trials.find(trial => trial.attainment < target);
    const held = failed === undefined ? trials : trials.slice(0, trials.indexOf(failed));
    low = held.at(-1)?.rate ?? low;
    high = failed?.rate ?? high;
  }
  tried.sort((a, b) => a.rate - b.rate);
  return { best: tried.find(trial => trial.rate === low), tried };
}

/** Past so many a queue for more saves no wait, so the rate of one is the same in any larger fleet. */
const LARGE_FLEET = 64;
/** For each batcher of a fleet, so that its queue has the time to grow if it will. */
const REQUESTS_A_BATCHER = 300;
const MOST_REQUESTS = 1_000_000;

export interface FleetAnswer {
  batcherCount: number;
  /** The whole fleet under the load, as a last trial showed it. */
  trial: TrialFigures;
}

/** The fewest batchers that keep the promise at that rate. `knee` is that of one. */
export async function fleetFor(parts: KneeParts, load: { rate: number; knee: number; mostPerBatcher: number }): Promise<FleetAnswer> {
  const { rate, knee, mostPerBatcher } = load;
  const enough = Math.ceil(rate / knee);
  const tryWith = (batcherCount: number) =>
    parts.run({ rate, batcherCount }, Math.min(MOST_REQUESTS, Math.max(REQUESTS_A_BATCHER * batcherCount, REQUESTS_A_BATCHER * 10)));
  if (enough > LARGE_FLEET) {
    const large = await findKnee(parts, { mostPerBatcher, batcherCount: LARGE_FLEET });
    const perBatcher = (large.best?.rate ?? knee * LARGE_FLEET) / LARGE_FLEET;
    const batcherCount = Math.ceil(rate / perBatcher);
    return { batcherCount, trial: await tryWith(batcherCount) };
  }
  let [few, many] = [Math.max(0, Math.ceil(rate / (mostPerBatcher * HIGHEST_SHARE)) - 1), enough];
  let trial = await tryWith(many);
  // Alone it kept the promise; chance may have it otherwise for as many.
  while (trial.attainment < parts.target && many < 2 * enough + 2) {
    few = many;
    many += 1;
    trial = await tryWith(many);
  }
  while (many - few > 1) {
    const half = (few + many) >>> 1;
    const halfTrial = await tryWith(half);
    if (halfTrial.attainment >= parts.target) [many, trial] = [half, halfTrial];
    else few = half;
  }
  return { batcherCount: many, trial };
}

/** Requests a second that one batcher could compute with all rows taken, whatever the latency. */
export function mostPerBatcher({ curves, settings, trace }: Scenario): number {
  const engine = new SimulatedEngine(curves, Math.max(2, settings.maxRunning));
  const mean = (of: 'promptTokens' | 'completionTokens') => trace.requests.reduce((sum, one) => sum + one[of], 0) / trace.requests.length;
  const [prompt, completion] = [mean('promptTokens'), mean('completionTokens')];
  const rows = settings.maxRunning;
  const stepMs = engine.decodeMs(rows, rows * (prompt + completion / 2)) / rows;
  const chunk = Math.min(prompt, settings.maxBatchedTokens);
  const prefillMs = (engine.prefillMs(prompt / 2, chunk) * prompt) / chunk;
  return 1000 / (prefillMs + completion * stepMs);
}
