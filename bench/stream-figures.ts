/**
 * StreamFigures: what many simultaneous streams amount to. Rates are named: aggregate is all streams together, perRequest is one
 * client's own. Tokens are those the server counted (usage); chunks only tell when they came.
 */
import type { StreamOutcome } from './load-client.ts';
import { percentile } from './spread.ts';

export interface StreamFigures {
  streamCount: number;
  completionTokens: number;
  promptTokens: number;
  cachedTokens: number;
  /** First request out to last stream ended. */
  wallMs: number;
  /** Completion tokens over the whole wall time, prefill and queueing included. */
  aggregateTokensPerSecond: number;
  /** Completion tokens while every stream was between its first and last token; undefined when there was no such time. */
  allRunningAggregateTokensPerSecond: number | undefined;
  /** Median of one stream's rate from its first to its last token. */
  perRequestTokensPerSecondP50: number;
  ttftMsP50: number;
  ttftMsP99: number;
  interTokenMsP50: number;
  interTokenMsP99: number;
}

/** Only streams that ended well and brought text may be given. */
export function streamFigures(outcomes: readonly StreamOutcome[]): StreamFigures {
  const completionTokens = sum(outcomes.map(outcome => outcome.usage!.completionTokens));
  const startedAt = Math.min(...outcomes.map(outcome => outcome.startedAt));
  const wallMs = Math.max(...outcomes.map(outcome => outcome.endedAt)) - startedAt;
  const ttfts = outcomes.map(outcome => outcome.chunkTimes[0]! - outcome.startedAt);
  const gaps = outcomes.flatMap(outcome => outcome.chunkTimes.slice(1).map((at, i) => at - outcome.chunkTimes[i]!));
  return {
    streamCount: outcomes.length,
    completionTokens,
    promptTokens: sum(outcomes.map(outcome => outcome.usage!.promptTokens)),
    cachedTokens: sum(outcomes.map(outcome => outcome.usage!.cachedTokens)),
    wallMs,
    aggregateTokensPerSecond: (completionTokens / wallMs) * 1000,
    allRunningAggregateTokensPerSecond: allRunningRate(outcomes),
    perRequestTokensPerSecondP50: percentile(outcomes.map(ownRate), 50),
    ttftMsP50: percentile(ttfts, 50),
    ttftMsP99: percentile(ttfts, 99),
    interTokenMsP50: gaps.length > 0 ? percentile(gaps, 50) : 0,
    interTokenMsP99: gaps.length > 0 ? percentile(gaps, 99) : 0,
  };
}

function ownRate(outcome: StreamOutcome): number {
  const ms = outcome.chunkTimes.at(-1)! - outcome.chunkTimes[0]!;
  return ms > 0 ? ((outcome.usage!.completionTokens - 1) / ms) * 1000 : 0;
}

/** A chunk can hold several tokens (a character that took more than one), so a stream's chunks are weighed by its tokens. */
function allRunningRate(outcomes: readonly StreamOutcome[]): number | undefined {
  const from = Math.max(...outcomes.map(outcome => outcome.chunkTimes[0]!));
  const to = Math.min(...outcomes.map(outcome => outcome.chunkTimes.at(-1)!));
  if (to <= from) return undefined;
  const tokens = sum(
    outcomes.map(outcome => {
      const within = outcome.chunkTimes.filter(at => at > from && at <= to).length;
      return within * (outcome.usage!.completionTokens / outcome.chunkTimes.length);
    }),
  );
  return (tokens / (to - from)) * 1000;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
