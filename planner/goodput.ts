/**
 * Goodput: what a load amounts to under two latency objectives: how many requests, and how many tokens, a second came as they were promised.
 * The same for requests that were really served and for simulated ones, so that the two can be laid beside each other; a million need no more memory
 * than ten, and parts of a load that were counted apart add up.
 */
import { LatencyHistogram } from './latency-histogram.ts';

const OUTCOMES = ['whole', 'refused', 'broken', 'unfinished', 'unsent'] as const;

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
  outcome: (typeof OUTCOMES)[number];
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
  counts: Record<ServedRequest['outcome'], number>;
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

/** Plain data, for another thread. */
export type TallyData = ReturnType<GoodputTally['data']>;

export class GoodputTally {
  readonly #objectives: Objectives;
  readonly #counts = { whole: 0, refused: 0, broken: 0, unfinished: 0, unsent: 0 };
  readonly #sums = { goodCount: 0, goodTokens: 0, completionTokens: 0, promptTokens: 0, cachedTokens: 0 };
  readonly #latencies = { ttft: new LatencyHistogram(), tpot: new LatencyHistogram(), e2e: new LatencyHistogram() };
  #lastAt = 0;
  /** Between two tokens of one stream; whoever hears of tokens fills it. */
  readonly gaps = new LatencyHistogram();

  constructor(objectives: Objectives) {
    this.#objectives = objectives;
  }

  add(request: ServedRequest): void {
    this.#counts[request.outcome] += 1;
    if (request.outcome !== 'whole') return;
    const { arrivedAt, firstTokenAt, lastTokenAt, completionTokens } = request;
    const ttftMs = firstTokenAt! - arrivedAt;
    // An answer of one token has no time per token and meets every objective for it.
    const tpotMs = completionTokens < 2 ? undefined : (lastTokenAt! - firstTokenAt!) / (completionTokens - 1);
    const sums = this.#sums;
    if (ttftMs <= this.#objectives.ttftMs && (tpotMs ?? 0) <= this.#objectives.tpotMs) {
      sums.goodCount += 1;
      sums.goodTokens += completionTokens;
    }
    sums.completionTokens += completionTokens;
    sums.promptTokens += request.promptTokens;
    sums.cachedTokens += request.cachedTokens;
    this.#latencies.ttft.observe(ttftMs);
    if (tpotMs !== undefined) this.#latencies.tpot.observe(tpotMs);
    this.#latencies.e2e.observe(lastTokenAt! - arrivedAt);
    this.#lastAt = Math.max(this.#lastAt, lastTokenAt!);
  }

  data() {
    const { ttft, tpot, e2e } = this.#latencies;
    return {
      counts: { ...this.#counts },
      sums: { ...this.#sums },
      lastAt: this.#lastAt,
      histograms: { ttft: ttft.data(), tpot: tpot.data(), e2e: e2e.data(), gaps: this.gaps.data() },
    };
  }

  /** Of another part of the same load, under the same objectives. */
  merge({ counts, sums, lastAt, histograms }: TallyData): void {
    for (const outcome of OUTCOMES) this.#counts[outcome] += counts[outcome];
    for (const name of Object.keys(sums) as (keyof typeof sums)[]) this.#sums[name] += sums[name];
    this.#lastAt = Math.max(this.#lastAt, lastAt);
    this.#latencies.ttft.merge(histograms.ttft);
    this.#latencies.tpot.merge(histograms.tpot);
    this.#latencies.e2e.merge(histograms.e2e);
    this.gaps.merge(histograms.gaps);
  }

  /** How long requests kept arriving, and when the first of them came. */
  figures(windowMs: number, fromMs = 0): GoodputFigures {
    const requestCount = OUTCOMES.reduce((sum, outcome) => sum + this.#counts[outcome], 0);
    const { goodCount, goodTokens, completionTokens, promptTokens, cachedTokens } = this.#sums;
    const { ttft, tpot, e2e } = this.#latencies;
    const perSecond = (amount: number, ms: number) => (ms > 0 ? (amount * 1000) / ms : 0);
    const ofRequests = (count: number) => (requestCount === 0 ? 0 : count / requestCount);
    const tpotP50 = tpot.percentile(50);
    return {
      requestCount,
      counts: { ...this.#counts },
      offeredRequestsPerSecond: perSecond(requestCount, windowMs),
      rejectionRate: ofRequests(this.#counts.refused),
      attainment: requestCount === 0 ? 1 : ofRequests(goodCount),
      goodputRequestsPerSecond: perSecond(goodCount, windowMs),
      goodputAggregateTokensPerSecond: perSecond(goodTokens, windowMs),
      aggregateTokensPerSecond: perSecond(completionTokens, Math.max(windowMs, this.#lastAt - fromMs)),
      perRequestTokensPerSecondP50: tpotP50 === undefined ? undefined : 1000 / tpotP50,
      ttftMs: percentiles(ttft),
      tpotMs: percentiles(tpot),
      interTokenMs: percentiles(this.gaps),
      e2eMs: percentiles(e2e),
      promptTokens,
      cachedTokens,
    };
  }
}

function percentiles(histogram: LatencyHistogram): Percentiles | undefined {
  if (histogram.count === 0) return undefined;
  return { p50: histogram.percentile(50)!, p90: histogram.percentile(90)!, p99: histogram.percentile(99)! };
}
