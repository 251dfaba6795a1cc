/**
 * Simulation: one rate on so many batchers, from the arrivals of a trace to goodput. What comes before the queue has filled as far as it will is left
 * out of the figures.
 */
import type { AdmissionSettings } from '../shared/admission.ts';
import { type ArrivalKind, arrivals } from './arrivals.ts';
import { simulateFleet } from './fleet.ts';
import { type GoodputFigures, GoodputTally, type Objectives, type TallyData } from './goodput.ts';
import type { ServiceCurves } from './service-curves.ts';
import type { BatcherUse, SimulatedSettings } from './simulated-batcher.ts';
import { simulatedLoad } from './simulated-load.ts';
import type { Trace } from './trace.ts';

/** What stays the same while rates and fleets are tried. Plain data, for another thread. */
export interface Scenario {
  curves: ServiceCurves;
  settings: SimulatedSettings;
  /** Of the gateway before them. */
  admission: AdmissionSettings;
  trace: Trace;
  arrivals: ArrivalKind;
  objectives: Objectives;
  requestCount: number;
  seed: number;
}

export interface Trial {
  /** Requests a second, all batchers together. */
  rate: number;
  batcherCount: number;
}

/** Of a load, what is simulated by itself. */
export interface Part {
  count: number;
  seed: number;
  /** Of all batchers and requests. */
  share: number;
}

/** What one trial, or a part of it, gave. Plain data. */
export interface TrialData {
  tally: TallyData;
  use: BatcherUse;
  /** Of requests that are in the tally, and when it begins. */
  windowMs: number;
  fromMs: number;
  endedAt: number;
}

export interface TrialFigures extends Trial, GoodputFigures {
  /** Share of the time in which a step ran, mean of all batchers. */
  busyShare: number;
  /** Rows that decode, mean over the time in which any does. */
  meanBatch: number;
  /** Share of the KV budget, at most. */
  peakKvUse: number;
  preemptionCount: number;
}

/** Of the requests, those that come first and count for nothing. */
const WARM_UP_SHARE = 0.1;

export function simulate(
  scenario: Scenario,
  { rate, batcherCount }: Trial,
  { count, seed, share }: Part = { count: scenario.requestCount, seed: scenario.seed, share: 1 },
): TrialData {
  const { curves, settings, admission, trace, objectives } = scenario;
  const windowMs = (count * 1000) / rate;
  const warmMs = windowMs * WARM_UP_SHARE;
  const tally = new GoodputTally(objectives);
  const requests = arrivals(trace, { kind: scenario.arrivals, rate, count, seed });
  const { use, endedAt } = simulateFleet({
    curves,
    settings,
    // A queue for a part of the batchers holds that part of what one for all may.
    admission: { ...admission, maxQueuedTokens: admission.maxQueuedTokens * share },
    batcherCount,
    requests: simulatedLoad(requests, { blockTokens: trace.blockTokens, templateTokens: curves.templateTokens }),
    windowMs,
    gaps: tally.gaps,
    onServed(served) {
      if (served.arrivedAt >= warmMs) tally.add(served);
    },
  });
  return { tally: tally.data(), use, windowMs: windowMs - warmMs, fromMs: warmMs, endedAt };
}

/** Of all parts of a trial, which ran beside each other. */
export function trialFigures(trial: Trial, objectives: Objectives, parts: readonly TrialData[]): TrialFigures {
  const tally = new GoodputTally(objectives);
  for (const part of parts) tally.merge(part.tally);
  const sum = (of: (part: TrialData) => number) => parts.reduce((total, part) => total + of(part), 0);
  const windowMs = sum(part => part.windowMs) / parts.length;
  const batcherMs = parts.reduce((total, part) => total + (part.endedAt * trial.batcherCount) / parts.length, 0);
  const steps = sum(part => part.use.decodeStepMs);
  return {
    ...trial,
    ...tally.figures(windowMs, Math.min(...parts.map(part => part.fromMs))),
    busyShare: batcherMs > 0 ? sum(part => part.use.busyMs) / batcherMs : 0,
    meanBatch: steps > 0 ? sum(part => part.use.rowMs) / steps : 0,
    peakKvUse: Math.max(...parts.map(part => part.use.peakKvUse)),
    preemptionCount: sum(part => part.use.preemptionCount),
  };
}
