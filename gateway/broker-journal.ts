/** BrokerJournal: what a broker tells of itself and its jobs: its metrics and its log lines; never a prompt, an answer or a key. */
import type { ApiError } from '../shared/errors.ts';
import type { TokenEvent } from '../shared/token-event.ts';
import { parseTraceparent } from '../shared/trace-context.ts';
import { REQUEST_ID_HEADER } from './broker-call.ts';
import type { Settings } from './env.ts';
import { LogLines } from './log-lines.ts';
import { type BrokerGauges, BrokerMetrics } from './metrics/broker-metrics.ts';
import type { SeriesEntry } from './metrics/series.ts';
import type { OpenJob } from './open-job.ts';
import type { LinkState } from './redis.ts';

export class BrokerJournal {
  readonly #metrics: BrokerMetrics;
  readonly #hasAnswerLines: boolean;
  readonly #redisUp: Record<string, boolean> = {};
  readonly #lines: LogLines;

  constructor(broker: string, settings: Pick<Settings, 'accessLog' | 'logGatherMs'>) {
    this.#metrics = new BrokerMetrics(broker);
    this.#lines = new LogLines({ gatherMs: settings.logGatherMs, print: text => console.log(text) });
    this.#hasAnswerLines = settings.accessLog !== 'off';
  }

  write(line: Record<string, unknown>): void {
    this.#lines.write({ at: new Date().toISOString(), ...line }, task => void task());
  }

  /** Something went wrong that is made good later. */
  trouble(event: string, cause: unknown): void {
    this.write({ event, cause: cause instanceof Error ? cause.message : String(cause) });
  }

  requestFailed(headers: Headers, { code, cause }: ApiError): void {
    const traceId = parseTraceparent(headers.get('traceparent'))?.traceId;
    this.write({ event: 'request_failed', requestId: headers.get(REQUEST_ID_HEADER), traceId, code, cause: String(cause) });
  }

  redisChanged(connection: string, state: LinkState, cause: string | undefined): void {
    this.#redisUp[connection] = state === 'connected';
    if (state === 'lost') this.#metrics.redisLost(connection);
    this.write({ event: `redis_${state}`, connection, cause });
  }

  /** An event of a job that is counted here. */
  heard(job: OpenJob, event: TokenEvent, now: number): void {
    this.#metrics.heard(job, event, now);
  }

  /** A job that is counted here is over. */
  ended({ record, order, bill, endCode }: OpenJob, now: number): void {
    const { id: jobId, tenant, model, submittedAt, traceparent } = record;
    const outcome = order.isAnswered ? 'finished' : (endCode ?? 'request_cancelled');
    this.#metrics.ended({ model, submittedAt, outcome, used: bill.used }, now);
    if (!this.#hasAnswerLines) return;
    const traceId = parseTraceparent(traceparent)?.traceId;
    this.write({ event: 'answer', jobId, traceId, tenant, model, outcome, ms: now - submittedAt, ...bill.used });
  }

  /** Counts of the Worker, which are counted here from now on. */
  takeOver(entries: readonly SeriesEntry[]): void {
    this.#metrics.takeOver(entries);
  }

  entries(gauges: Omit<BrokerGauges, 'redisUp'>): SeriesEntry[] {
    return this.#metrics.entries({ ...gauges, redisUp: this.#redisUp });
  }
}
