/**
 * Goodput: what a load amounts to under two latency objectives: how many requests, and how many tokens, a second came as they were promised.
 * The same for requests that were really served and for simulated ones, so that the two can be laid beside each other.
 */
import type { LatencyHistogram } from './latency-histogram.ts';

/** Times in milliseconds from the start of the load. */
export interface ServedRequest {
  arrivedAt: number;
  promptTokens: number;
  /** Of the prompt, found in a prefix cache. */
  cachedTokens: number;
  completionTokens: number;
  /** Undefined where no token came. */
  firstTokenAt: number | undefined;
  lastTokenAt: number | undefined;
  /** `unfinished`: still open when the measurement ended, which no objective allows; `unsent`: more were open than the client may have. */
  outcome: 'whole' | 'refused' | 'broken' | 'unfinished' | 'unsent';
}

export interface Objectives {
  /** Time to first token. */
  ttftMs: number;
  /** Time per output token after the first, mean of a request. */
  tpotMs: number;
}

export interface Percentiles {
  p50: number;
  p90: number;
  p99: number;
}

export interface GoodputFigures {
  requestCount: number;
  wholeCount: number;
  refusedCount: number;
  brokenCount: number;
  unfinishedCount: number;
  unsentCount: number;
  offeredRequestsPerSecond: number;
  rejectionRate: number;
  /** Share of all requests that came as promised. */
  attainment: number;
  /** Requests a second that came as promised, of those that arrived in the window. */
  goodputRequestsPerSecond: number;
  /** All requests together: completion tokens of requests that came as promised. */
  goodputAggregateTokensPerSecond: number;
  /** All requests together: completion tokens of whole answers, from the first arrival to the last token. */
  aggregateTokensPerSecond: number;
  /** Of one request: median of its tokens per second after the first. */
  perRequestTokensPerSecondP50: number | undefined;
  ttftMs: Percentiles | undefined;
  tpotMs: Percentiles | undefined;
  interTokenMs: Percentiles | undefined;
  e2eMs: Percentiles | undefined;
  promptTokens: number;
  cachedTokens: number;
}

export interface LoadRecord {
  requests: readonly ServedRequest[];
  /** Between two tokens of one stream. */
  gaps: LatencyHistogram;
  /** How long requests kept arriving. */
  windowMs: number;
}

export function goodputFigures({ requests, gaps, windowMs }: LoadRecord, objectives: Objectives): GoodputFigures {
  const whole = requests.filter(request => request.outcome === 'whole');
  const good = whole.filter(request => isGood(request, objectives));
  const counted = (outcome: ServedRequest['outcome']) => requests.filter(request => request.outcome === outcome).length;
  const tpots = whole.flatMap(request => tpotMs(request) ?? []);
  const lastAt = whole.reduce((most, request) => Math.max(most, request.lastTokenAt!), windowMs);
  const perSecond = (amount: number, ms: number) => (ms > 0 ? (amount * 1000) / ms : 0);
  return {
    requestCount: requests.length,
    wholeCount: whole.length,
    refusedCount: counted('refused'),
    brokenCount: counted('broken'),
    unfinishedCount: counted('unfinished'),
    unsentCount: counted('unsent'),
    offeredRequestsPerSecond: perSecond(requests.length, windowMs),
    rejectionRate: requests.length === 0 ? 0 : counted('refused') / requests.length,
    attainment: requests.length === 0 ? 1 : good.length / requests.length,
    goodputRequestsPerSecond: perSecond(good.length, windowMs),
    goodputAggregateTokensPerSecond: perSecond(sum(good, 'completionTokens'), windowMs),
    aggregateTokensPerSecond: perSecond(sum(whole, 'completionTokens'), lastAt),
    perRequestTokensPerSecondP50: percentile(
      tpots.filter(ms => ms > 0).map(ms => 1000 / ms),
      50,
    ),
    ttftMs: percentiles(whole.map(request => request.firstTokenAt! - request.arrivedAt)),
    tpotMs: percentiles(tpots),
    interTokenMs: gaps.count === 0 ? undefined : { p50: gaps.percentile(50)!, p90: gaps.percentile(90)!, p99: gaps.percentile(99)! },
    e2eMs: percentiles(whole.map(request => request.lastTokenAt! - request.arrivedAt)),
    promptTokens: sum(whole, 'promptTokens'),
    cachedTokens: sum(whole, 'cachedTokens'),
  };
}

/** An answer of one token has no time per token and meets every objective for it. */
export function isGood(request: ServedRequest, objectives: Objectives): boolean {
  return (
    request.outcome === 'whole' &&
    request.firstTokenAt! - request.arrivedAt <= objectives.ttftMs &&
    (tpotMs(request) ?? 0) <= objectives.tpotMs
  );
}

function tpotMs({ firstTokenAt, lastTokenAt, completionTokens }: ServedRequest): number | undefined {
  return completionTokens < 2 ? undefined : (lastTokenAt! - firstTokenAt!) / (completionTokens - 1);
}

function percentiles(values: readonly number[]): Percentiles | undefined {
  if (values.length === 0) return undefined;
  const sorted = Float64Array.from(values).sort();
  return { p50: ranked(sorted, 50), p90: ranked(sorted, 90), p99: ranked(sorted, 99) };
}

function percentile(values: readonly number[], rank: number): number | undefined {
  return values.length === 0 ? undefined : ranked(Float64Array.from(values).sort(), rank);
}

/** With linear interpolation between neighbours. */
function ranked(sorted: Float64Array, rank: number): number {
  const place = ((sorted.length - 1) * rank) / 100;
  const below = Math.floor(place);
  const low = sorted[below]!;
  return low + (sorted[Math.min(below + 1, sorted.length - 1)]! - low) * (place - below);
}

function sum(requests: readonly ServedRequest[], field: 'promptTokens' | 'cachedTokens' | 'completionTokens'): number {
  return requests.reduce((total, request) => total + request[field], 0);
}
