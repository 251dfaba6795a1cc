/**
 * Arrivals: which request of a trace comes when, at a wanted mean rate, in an open loop: nobody waits for an answer before the next one comes.
 * Guarantee: the same trace, rate, count and seed give the same arrivals.
 */
import { PlanningError } from './planning-error.ts';
import { randomSource } from './random-source.ts';
import type { Trace, TracedRequest } from './trace.ts';
import { sampleEvenly } from './trace-scaling.ts';

/** `poisson`: independent users. `trace`: the trace's own times, stretched to the rate: its bursts stay. */
export const ARRIVAL_KINDS = ['poisson', 'trace'] as const;
export type ArrivalKind = (typeof ARRIVAL_KINDS)[number];

export interface ArrivalPlan {
  kind: ArrivalKind;
  /** Requests per second, over the whole plan. */
  rate: number;
  count: number;
  seed: number;
}

/** `atMs` is from the start of the plan. */
export function arrivals(trace: Trace, plan: ArrivalPlan): TracedRequest[] {
  return plan.kind === 'poisson' ? poisson(trace, plan) : asTraced(trace, plan);
}

/** Neighbours in the trace share prefixes, so they stay neighbours; where there are none, the lengths of the whole trace are in. */
function poisson({ requests, blockTokens }: Trace, { rate, count, seed }: ArrivalPlan): TracedRequest[] {
  const random = randomSource(seed);
  const picked = blockTokens === undefined ? shuffled(sampleEvenly(requests, count), random) : cycled(requests, count);
  let atMs = 0;
  return picked.map(request => {
    atMs += (-Math.log(1 - random()) * 1000) / rate;
    return { ...request, atMs };
  });
}

function asTraced({ requests }: Trace, { rate, count }: ArrivalPlan): TracedRequest[] {
  const spanMs = requests.at(-1)!.atMs;
  if (spanMs <= 0) throw new PlanningError('the trace has no times; poisson arrivals need none');
  const picked = cycled(requests, count);
  // One mean gap behind the last, so that a repeated trace does not begin on its own end.
  const roundMs = spanMs * (1 + 1 / requests.length);
  const times = picked.map(({ atMs }, index) => atMs + Math.floor(index / requests.length) * roundMs);
  const stretch = (count * 1000) / rate / (count < requests.length ? Math.max(1, times.at(-1)!) : (roundMs * count) / requests.length);
  return picked.map((request, index) => ({ ...request, atMs: times[index]! * stretch }));
}

function cycled(requests: readonly TracedRequest[], count: number): TracedRequest[] {
  return Array.from({ length: count }, (_, index) => requests[index % requests.length]!);
}

/** Fisher and Yates's. */
function shuffled(requests: TracedRequest[], random: () => number): TracedRequest[] {
  for (let last = requests.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [requests[last], requests[other]] = [requests[other]!, requests[last]!];
  }
  return requests;
}
