/**
 * Metrics: what this batcher measures, under vLLM's names, meanings and buckets with the prefix `sluice_`. Tokens per second always say
 * their scope: `aggregate` is all requests together, `request` is one.
 */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Timings, Usage } from '../shared/token-event.ts';
import type { KvUsage } from './kv/kv-cache.ts';
import type { StepTimes } from './loop.ts';
import type { QualityLoss } from './quality/quality-loss.ts';
import type { StepPlan } from './scheduler/step-plan.ts';

const TTFT_BUCKETS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560];
const ITL_BUCKETS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80];
export const REQUEST_BUCKETS = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680];
export const ITERATION_BUCKETS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/** What is read when somebody asks. */
export interface MetricsSource {
  runningCount(): number;
  waitingCount(): number;
  preemptionCount(): number;
  kvUsage(): KvUsage;
  kvResidentBytes(): Promise<number | undefined>;
  prefillTokensPerSecond(): number;
  decodeTokensPerSecond(): number;
}

/** A request that has ended. */
export interface EndedRequest {
  /** stop, length, abort, or the code of its error. */
  reason: string;
  usage: Usage;
  timings: Timings;
  e2eMs: number;
}

export class Metrics {
  readonly registry = new Registry();
  readonly #promptTokens = this.#counter('prompt_tokens_total', 'Prompt tokens of requests that got a first token.');
  readonly #generationTokens = this.#counter('generation_tokens_total', 'Generated tokens.');
  readonly #success = this.#counter('request_success_total', 'Requests that ended, by reason.', ['finished_reason']);
  readonly #ttft = this.#histogram('time_to_first_token_seconds', 'From the edge to the first token.', TTFT_BUCKETS);
  readonly #itl = this.#histogram('inter_token_latency_seconds', 'Between two tokens of one sequence.', ITL_BUCKETS);
  readonly #e2e = this.#histogram('e2e_request_latency_seconds', 'From the edge to the last token.', REQUEST_BUCKETS);
  readonly #queueTime = this.#histogram('request_queue_time_seconds', 'From the edge to the first prefill chunk.', REQUEST_BUCKETS);
  readonly #prefillTime = this.#histogram(
    'request_prefill_time_seconds',
    'From the first prefill chunk to the first token.',
    REQUEST_BUCKETS,
  );
  readonly #decodeTime = this.#histogram('request_decode_time_seconds', 'From the first token to the last.', REQUEST_BUCKETS);
  readonly #iterationTokens = this.#histogram('iteration_tokens_total', 'Tokens computed in one step.', ITERATION_BUCKETS);
  readonly #requestRate = this.#histogram('request_tokens_per_second', 'Decode speed of one request.', ITERATION_BUCKETS, ['scope']);
  readonly #stepOverhead = this.#histogram(
    'step_overhead_seconds',
    'Time of a step outside onnxruntime.',
    [0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032],
  );
  readonly #quick = this.#histogram('quick_answer_seconds', 'Answering what needs no row.', TTFT_BUCKETS, ['kind']);
  readonly #drafts = this.#counter('spec_decode_num_drafts', 'Verifications of drafts.');
  readonly #draftTokens = this.#counter('spec_decode_num_draft_tokens', 'Tokens offered by drafts.');
  readonly #acceptedTokens = this.#counter('spec_decode_num_accepted_tokens', 'Draft tokens that the model would have sampled.');

  constructor(model: string, source: MetricsSource) {
    this.registry.setDefaultLabels({ model_name: model });
    this.#gauge('num_requests_running', 'Sequences with a row.', source.runningCount);
    this.#gauge('num_requests_waiting', 'Sequences that wait for a row.', source.waitingCount);
    this.#gauge('kv_cache_usage_perc', 'Share of the KV budget that running sequences hold, 0 to 1.', () => {
      const { budgetBlocks, rowBlocks } = source.kvUsage();
      return rowBlocks / budgetBlocks;
    });
    new Gauge({
      name: 'sluice_kv_cache_resident_bytes',
      help: 'Memory that keys and values of rows and prefix store take, in whole pages; 0 where the system does not tell.',
      registers: [this.registry],
      async collect() {
        this.set((await source.kvResidentBytes()) ?? 0);
      },
    });
    this.#total('num_preemptions_total', 'Sequences that lost their row to make room.', source.preemptionCount);
    this.#total('prefix_cache_queries_total', 'Prompt tokens looked up in the prefix cache.', () => source.kvUsage().queryTokens);
    this.#total('prefix_cache_hits_total', 'Prompt tokens found in the prefix cache.', () => source.kvUsage().hitTokens);
    const rates = new Gauge({
      name: 'sluice_tokens_per_second',
      help: 'Speed over the last seconds of work, by phase.',
      labelNames: ['scope', 'phase'],
      registers: [this.registry],
      collect() {
        this.set({ scope: 'aggregate', phase: 'prefill' }, source.prefillTokensPerSecond());
        this.set({ scope: 'aggregate', phase: 'decode' }, source.decodeTokensPerSecond());
      },
    });
    rates.set({ scope: 'aggregate', phase: 'decode' }, 0);
  }

  step(plan: StepPlan, { stepMs, engineMs }: Pick<StepTimes, 'stepMs' | 'engineMs'>): void {
    const prefillTokens = plan.chunks.reduce((sum, chunk) => sum + chunk.tokenIds.length, 0);
    this.#iterationTokens.observe(prefillTokens + plan.decode.length);
    this.#stepOverhead.observe((stepMs - engineMs) / 1000);
  }

  tokenSampled(sinceLastMs: number | undefined): void {
    this.#generationTokens.inc();
    if (sinceLastMs !== undefined) this.#itl.observe(sinceLastMs / 1000);
  }

  draftVerified(draftTokens: number, acceptedTokens: number): void {
    this.#drafts.inc();
    this.#draftTokens.inc(draftTokens);
    this.#acceptedTokens.inc(acceptedTokens);
  }

  /** Of a model whose weights are not those of its file. */
  qualityMeasured({ exactPerplexity, fastPerplexity }: QualityLoss): void {
    const perplexity = new Gauge({
      name: 'sluice_model_perplexity',
      help: 'Of a fixed text, as measured when the model was prepared: exact as in the file, fast as it runs.',
      labelNames: ['quality'],
      registers: [this.registry],
    });
    perplexity.set({ quality: 'exact' }, exactPerplexity);
    perplexity.set({ quality: 'fast' }, fastPerplexity);
  }

  /** A request that needed no row; so much of it was spent here. */
  quickAnswered(kind: string, ms: number): void {
    this.#quick.observe({ kind }, ms / 1000);
  }

  ended({ reason, usage, timings, e2eMs }: EndedRequest): void {
    this.#success.inc({ finished_reason: reason });
    this.#e2e.observe(e2eMs / 1000);
    this.#queueTime.observe(timings.queueMs / 1000);
    if (usage.completionTokens === 0) return;
    this.#promptTokens.inc(usage.promptTokens);
    this.#ttft.observe(timings.ttftMs / 1000);
    this.#prefillTime.observe(timings.prefillMs / 1000);
    this.#decodeTime.observe(Math.max(0, e2eMs - timings.ttftMs) / 1000);
    if (timings.decodeTokensPerSecond > 0) this.#requestRate.observe({ scope: 'request' }, timings.decodeTokensPerSecond);
  }

  #counter(name: string, help: string, labelNames: string[] = []): Counter {
    return new Counter({ name: `sluice_${name}`, help, labelNames, registers: [this.registry] });
  }

  #histogram(name: string, help: string, buckets: number[], labelNames: string[] = []): Histogram {
    return new Histogram({ name: `sluice_${name}`, help, buckets, labelNames, registers: [this.registry] });
  }

  #gauge(name: string, help: string, value: () => number): void {
    new Gauge({
      name: `sluice_${name}`,
      help,
      registers: [this.registry],
      collect() {
        this.set(value());
      },
    });
  }

  /** A counter that somebody else keeps. */
  #total(name: string, help: string, value: () => number): void {
    let counted = 0;
    new Counter({
      name: `sluice_${name}`,
      help,
      registers: [this.registry],
      collect() {
        const now = value();
        this.inc(Math.max(0, now - counted));
        counted = now;
      },
    });
  }
}
