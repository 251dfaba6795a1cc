/**
 * EngineWorkload: a program of its own that gives the engine alone the work that a set of simultaneous requests gave the whole path:
 * every prompt's prefill, one after the other, then all answers decoded together. No sampling, no text, no queue.
 *
 *   node bench/engine-workload.ts '<WorkloadPlan as JSON>'
 */
import { OrtEngine, type OrtEngineOptions } from '../batcher/engine/ort-engine.ts';
import { tokenSource } from './token-source.ts';

export interface WorkloadPlan {
  engine: OrtEngineOptions;
  /** One entry a request; the cached ones are in the row before the clock starts. */
  requests: readonly { promptTokens: number; cachedTokens: number }[];
  /** Of each request. */
  completionTokens: number;
}

export interface WorkloadTimes {
  prefillMs: number;
  decodeMs: number;
  /** Completion tokens of all requests over prefill and decode. */
  aggregateTokensPerSecond: number;
  /** Decode steps alone. */
  decodeAggregateTokensPerSecond: number;
}

export async function measureWorkload({ engine: options, requests, completionTokens }: WorkloadPlan): Promise<WorkloadTimes> {
  const engine = new OrtEngine(options);
  const nextToken = tokenSource(options.model.vocabSize);
  const tokens = (count: number) => Array.from({ length: count }, nextToken);
  try {
    for (const [row, { cachedTokens }] of requests.entries()) {
      if (cachedTokens > 0) await engine.prefill({ row, start: 0, tokenIds: tokens(cachedTokens), logitCount: 0 });
    }
    const step = (offset: number) =>
      engine.decode({ tokenIds: tokens(requests.length), positions: requests.map(request => request.promptTokens + offset) });
    // One of each kind as warm-up; what it writes is overwritten.
    await engine.prefill({ row: 0, start: requests[0]!.cachedTokens, tokenIds: tokens(uncached(requests[0]!)), logitCount: 1 });
    await step(0);
    const startedAt = performance.now();
    for (const [row, request] of requests.entries()) {
      await engine.prefill({ row, start: request.cachedTokens, tokenIds: tokens(uncached(request)), logitCount: 1 });
    }
    const prefilledAt = performance.now();
    // The first token of each answer comes from its prefill.
    for (let offset = 0; offset < completionTokens - 1; offset++) await step(offset);
    const endedAt = performance.now();
    return {
      prefillMs: prefilledAt - startedAt,
      decodeMs: endedAt - prefilledAt,
      aggregateTokensPerSecond: (requests.length * completionTokens * 1000) / (endedAt - startedAt),
      decodeAggregateTokensPerSecond: (requests.length * (completionTokens - 1) * 1000) / (endedAt - prefilledAt),
    };
  } finally {
    engine.close();
  }
}

function uncached(request: { promptTokens: number; cachedTokens: number }): number {
  return request.promptTokens - request.cachedTokens;
}

if (import.meta.main) {
  const plan = JSON.parse(process.argv[2] ?? '{}') as WorkloadPlan;
  process.stdout.write(`${JSON.stringify(await measureWorkload(plan))}\n`);
}
