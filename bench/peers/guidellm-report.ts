/**
 * GuidellmReport: what guidellm's JSON file says of each benchmark in it, in the terms of our reports. Rates and times are guidellm's own figures,
 * not computed anew. Throws where the file is of another form.
 */
import { percentile } from '../spread.ts';

export interface GuidellmBenchmark {
  /** Requests that were under way at once. */
  streamCount: number;
  completedCount: number;
  erroredCount: number;
  /** What guidellm says of each that errored; the first line. */
  errors: string[];
  /** Of those that completed. */
  requests: GuidellmRequest[];
  ttftMs: Percentiles;
  /** From the first to the last token, over one token less than there are. */
  interTokenMs: Percentiles;
  /** From the first to the last token, over all tokens. */
  perOutputTokenMs: Percentiles;
  /** Of one request over its whole time, time to first token included. */
  perRequestOutputTokensPerSecondP50: number;
  /** Of all requests together. */
  aggregateOutputTokensPerSecond: number;
}

export interface GuidellmRequest {
  prompt: string;
  /** By the server's `usage`; where that is absent guidellm puts in what was asked for, without a word. */
  promptTokens: number;
  outputTokens: number;
}

export interface Percentiles {
  p50: number;
  p99: number;
}

/** The file's form, as far as it is read. */
interface ReportFile {
  benchmarks: {
    args: { strategy: { streams: number } };
    request_totals: { successful: number; errored: number };
    requests: { successful: SampleOfFile[]; errored: { error: string }[] };
    metrics: Record<
      'time_to_first_token_ms' | 'inter_token_latency_ms' | 'time_per_output_token_ms' | 'output_tokens_per_second',
      { successful: { mean: number; percentiles: { p50: number; p99: number } } }
    >;
  }[];
}

interface SampleOfFile {
  prompt: string;
  prompt_tokens: number;
  output_tokens: number;
  output_tokens_per_second: number;
}

/** `text` is the content of the file. The benchmarks come in the order in which they ran. */
export function readGuidellmReport(text: string): GuidellmBenchmark[] {
  try {
    return (JSON.parse(text) as ReportFile).benchmarks.map(benchmarkOf);
  } catch (error) {
    throw new Error(`guidellm's report cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function benchmarkOf({ args, request_totals: totals, requests, metrics }: ReportFile['benchmarks'][number]): GuidellmBenchmark {
  const percentiles = ({ successful }: ReportFile['benchmarks'][number]['metrics'][keyof typeof metrics]): Percentiles => ({
    p50: successful.percentiles.p50,
    p99: successful.percentiles.p99,
  });
  return {
    streamCount: args.strategy.streams,
    completedCount: totals.successful,
    erroredCount: totals.errored,
    errors: requests.errored.map(({ error }) => error.split('\n', 1)[0]!),
    requests: requests.successful.map(sample => ({
      prompt: sample.prompt,
      promptTokens: sample.prompt_tokens,
      outputTokens: sample.output_tokens,
    })),
    ttftMs: percentiles(metrics.time_to_first_token_ms),
    interTokenMs: percentiles(metrics.inter_token_latency_ms),
    perOutputTokenMs: percentiles(metrics.time_per_output_token_ms),
    // The metric of this name is the aggregate: a distribution over the time of the benchmark.
    perRequestOutputTokensPerSecondP50: medianOf(requests.successful.map(sample => sample.output_tokens_per_second)),
    aggregateOutputTokensPerSecond: metrics.output_tokens_per_second.successful.mean,
  };
}

/** NaN where every request errored. */
function medianOf(rates: readonly number[]): number {
  return rates.length === 0 ? Number.NaN : percentile(rates, 50);
}

/** What one benchmark must show: every request answered, with as many tokens as were asked for and as the prompt has. */
export interface Expectation {
  requestCount: number;
  outputTokens: number;
  /** Of each completed request, by a tokenizer that is not ours. */
  promptTokens: readonly number[];
}

export interface Differences {
  /** Neither completed nor told to have errored, those cut off among them. */
  missingCount: number;
  outputTokensCount: number;
  promptTokensCount: number;
}

/** Counts of requests that differ from what was expected. Throws where the expectation is of other requests. */
export function differencesFrom(expected: Expectation, { requests, erroredCount }: GuidellmBenchmark): Differences {
  if (expected.promptTokens.length !== requests.length) {
    throw new Error(`${expected.promptTokens.length} prompts were counted, and ${requests.length} requests completed`);
  }
  return {
    missingCount: expected.requestCount - requests.length - erroredCount,
    outputTokensCount: requests.filter(({ outputTokens }) => outputTokens !== expected.outputTokens).length,
    promptTokensCount: requests.filter(({ promptTokens }, index) => promptTokens !== expected.promptTokens[index]).length,
  };
}
