/**
 * RequestCost: what requests that come and go beside others cost besides their tokens: clients of the whole product that ask again and again, with short
 * prompts and with long ones, beside the same in simulated time. Half a minute on a small host.
 */
import { type ClosedLoop, type ClosedLoopRecord, simulateClosedLoop } from '../planner/closed-loop.ts';
import type { PathCosts } from '../planner/service-curves.ts';
import { simulatedLoad } from '../planner/simulated-load.ts';
import type { StreamOutcome } from './load-client.ts';
import { spreadOf } from './spread.ts';

const CLIENTS = 8;
const REQUESTS = 48;
const TOKENS = 24;
const PROMPT_WORDS = { short: 12, long: 150 };
/** Of both loops in turn. */
const ROUNDS = 3;
/** Prefill beside streams is hardly faster than alone; the measurements may say so. */
const LEAST_SHARE = 0.8;
const FIT_ROUNDS = 20;
const FIT_STEP = 0.5;

export type RequestCost = Pick<PathCosts, 'requestMs' | 'prefillShare'>;

export interface RequestMeasurement extends Pick<ClosedLoop, 'curves' | 'settings'> {
  ask(maxTokens: number, promptWords: number): Promise<StreamOutcome>;
  /** With which every prompt begins. */
  templateTokens: number;
  progress(line: string): void;
}

export async function measureRequests(measurement: RequestMeasurement): Promise<RequestCost> {
  const { ask, curves, settings, templateTokens, progress } = measurement;
  progress('measuring requests that come and go');
  const runs: Record<'short' | 'long', LoopRun[]> = { short: [], long: [] };
  for (let round = 0; round < ROUNDS; round++)
    for (const length of ['short', 'long'] as const) runs[length].push(await runLoop(() => ask(TOKENS, PROMPT_WORDS[length])));
  const realMs = (loops: readonly LoopRun[]): number => spreadOf(loops.map(({ ms }) => ms)).median;
  const simulate = ([loop]: readonly LoopRun[], cost: RequestCost): ClosedLoopRecord => {
    const requests = loop!.promptTokens.map(promptTokens => ({ atMs: 0, promptTokens, completionTokens: TOKENS }));
    return simulateClosedLoop({
      ...{ curves: { ...curves, path: { ...curves.path, ...cost } }, settings, clientCount: CLIENTS },
      requests: [...simulatedLoad(requests, { blockTokens: undefined, templateTokens })],
    });
  };
  return fitRequests({
    real: { shortMs: realMs(runs.short), longMs: realMs(runs.long) },
    requestCount: REQUESTS,
    simulate: cost => ({ short: simulate(runs.short, cost), long: simulate(runs.long, cost) }),
  });
}

interface LoopRun {
  /** From the first request to the last token. */
  ms: number;
  promptTokens: number[];
}

async function runLoop(ask: () => Promise<StreamOutcome>): Promise<LoopRun> {
  const outcomes: StreamOutcome[] = [];
  let sentCount = 0;
  const client = async () => {
    while (sentCount < REQUESTS) {
      sentCount += 1;
      outcomes.push(await ask());
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  const from = Math.min(...outcomes.map(({ startedAt }) => startedAt));
  const to = Math.max(...outcomes.map(({ chunkTimes, endedAt }) => chunkTimes.at(-1) ?? endedAt));
  return { ms: to - from, promptTokens: outcomes.map(({ usage }) => usage!.promptTokens) };
}

export interface RequestFit {
  /** Two loops of as many requests, with short prompts and with long ones. */
  real: { shortMs: number; longMs: number };
  requestCount: number;
  simulate(cost: RequestCost): { short: ClosedLoopRecord; long: ClosedLoopRecord };
}

/**
 * With which both simulated loops take as long as the real ones; no request costs less than nothing. By Newton's method; since a loop's time jumps where its
 * steps fall otherwise, each round goes half of the way, and the one that came nearest counts. Exported for its test.
 */
export function fitRequests({ real, requestCount, simulate }: RequestFit): RequestCost {
  let cost: RequestCost = { requestMs: 0, prefillShare: 1 };
  let nearest = { cost, error: Number.POSITIVE_INFINITY };
  for (let round = 0; round < FIT_ROUNDS; round++) {
    const { short, long } = simulate(cost);
    const [missingShort, missingLong] = [real.shortMs - short.ms, real.longMs - long.ms];
    const error = Math.abs(missingShort) / real.shortMs + Math.abs(missingLong) / real.longMs;
    if (error < nearest.error) nearest = { cost, error };
    const [prefillShort, prefillLong] = [short.prefillMs / cost.prefillShare, long.prefillMs / cost.prefillShare];
    const share = (missingLong - missingShort) / (prefillLong - prefillShort);
    const requestMs = cost.requestMs + FIT_STEP * ((missingShort - share * prefillShort) / requestCount);
    const more = requestMs >= 0 ? share : missingLong / prefillLong;
    cost = { requestMs: Math.max(0, requestMs), prefillShare: Math.max(LEAST_SHARE, cost.prefillShare + FIT_STEP * more) };
  }
  return nearest.cost;
}
