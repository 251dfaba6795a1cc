/** EncoderMetrics: what a batcher of embeddings measures, under vLLM's names, meanings and buckets with the prefix `sluice_`. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { ITERATION_BUCKETS, REQUEST_BUCKETS } from '../metrics.ts';
import type { EmbeddingJob } from './embedding-job.ts';

export interface EncoderMetricsSource {
  runningCount(): number;
  waitingCount(): number;
  tokensPerSecond(): number;
}

export class EncoderMetrics {
  readonly registry = new Registry();
  readonly #promptTokens: Counter;
  readonly #success: Counter;
  readonly #e2e: Histogram;
  readonly #queueTime: Histogram;
  readonly #runTokens: Histogram;
  readonly #quick: Histogram;

  constructor(model: string, source: EncoderMetricsSource) {
    const registers = [this.registry];
    this.registry.setDefaultLabels({ model_name: model });
    const gauge = (name: string, help: string, value: () => number) =>
      new Gauge({
        ...{ name: `sluice_${name}`, help, registers },
        collect() {
          this.set(value());
        },
      });
    gauge('num_requests_running', 'Requests with texts in the run under way.', source.runningCount);
    gauge('num_requests_waiting', 'Requests with texts that wait for a run.', source.waitingCount);
    new Gauge({
      ...{ name: 'sluice_tokens_per_second', help: 'Speed over the last seconds of work, by phase.', registers },
      labelNames: ['scope', 'phase'],
      collect() {
        this.set({ scope: 'aggregate', phase: 'prefill' }, source.tokensPerSecond());
      },
    });
    const histogram = (name: string, help: string, buckets: number[], labelNames: string[] = []) =>
      new Histogram({ name: `sluice_${name}`, help, buckets, labelNames, registers });
    this.#promptTokens = new Counter({ name: 'sluice_prompt_tokens_total', help: 'Tokens of texts that were embedded.', registers });
    this.#success = new Counter({
      ...{ name: 'sluice_request_success_total', help: 'Requests that ended, by reason.', registers },
      labelNames: ['finished_reason'],
    });
    this.#e2e = histogram('e2e_request_latency_seconds', 'From the edge to the last vector.', REQUEST_BUCKETS);
    this.#queueTime = histogram('request_queue_time_seconds', 'From the edge to the first run.', REQUEST_BUCKETS);
    this.#runTokens = histogram('iteration_tokens_total', 'Tokens of one run.', ITERATION_BUCKETS);
    this.#quick = histogram('quick_answer_seconds', 'Answering what needs no row.', REQUEST_BUCKETS, ['kind']);
  }

  ran(tokens: number): void {
    this.#runTokens.observe(tokens);
    this.#promptTokens.inc(tokens);
  }

  ended({ endReason = 'stop', timings }: EmbeddingJob, e2eMs: number): void {
    this.#success.inc({ finished_reason: endReason });
    this.#e2e.observe(e2eMs / 1000);
    this.#queueTime.observe(timings.queueMs / 1000);
  }

  quickAnswered(kind: string, ms: number): void {
    this.#quick.observe({ kind }, ms / 1000);
  }
}
