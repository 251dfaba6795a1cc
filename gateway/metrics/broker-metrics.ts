/** BrokerMetrics: what one broker object counts of its jobs and its connections, and the counts that isolates of the Worker have handed to it. */
import type { TokenEvent } from '../../shared/token-event.ts';
import { Histograms, Series, type SeriesEntry, seriesKey } from './series.ts';

/** What is read when somebody asks. */
export interface BrokerGauges {
  openRequests: number;
  openStreams: number;
  heldRequests: number;
  bufferedBytes: number;
  /** By the purpose of the connection. */
  redisUp: Readonly<Record<string, boolean>>;
}

/** A job of which events come in. */
interface HeardJob {
  record: { model: string; submittedAt: number };
  /** A token of it has come. */
  hasToken: boolean;
}

interface EndedJob {
  model: string;
  submittedAt: number;
  /** `finished`, or the code of the error. */
  outcome: string;
  used: { promptTokens: number; cachedTokens: number };
}

/** As the batchers' own, which are vLLM's. */
const TTFT_BUCKETS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560];
const REQUEST_BUCKETS = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680];

export class BrokerMetrics {
  readonly #broker: string;
  readonly #series = new Series();
  /** Of the Worker, whichever broker they were handed to. */
  readonly #handedOver = new Series();
  /** Names of the counters of an end, which are longer to write than to count. */
  readonly #endNames = new Map<string, { answers: string; promptTokens: string; cachedTokens: string }>();
  readonly #relayedTokens = new Map<string, number>();
  readonly #ttft = new Histograms('sluice_gateway_time_to_first_token_seconds', TTFT_BUCKETS);
  readonly #queueTime = new Histograms('sluice_gateway_queue_time_seconds', REQUEST_BUCKETS);
  readonly #requestTime = new Histograms('sluice_gateway_request_seconds', REQUEST_BUCKETS);

  constructor(broker: string) {
    this.#broker = broker;
  }

  takeOver(entries: readonly SeriesEntry[]): void {
    this.#handedOver.addAll(entries);
  }

  /** Each event once. */
  heard(job: HeardJob, event: TokenEvent, now: number): void {
    const { model, submittedAt } = job.record;
    const seconds = Math.max(0, now - submittedAt) / 1000;
    if (event.type === 'accepted') this.#queueTime.observe(model, () => this.#labels(model), seconds);
    if (event.type !== 'delta' || event.tokenIds.length === 0) return;
    this.#relayedTokens.set(model, (this.#relayedTokens.get(model) ?? 0) + event.tokenIds.length);
    if (job.hasToken) return;
    job.hasToken = true;
    this.#ttft.observe(model, () => this.#labels(model), seconds);
  }

  ended({ model, submittedAt, outcome, used }: EndedJob, now: number): void {
    const kind = `${outcome} ${model}`;
    let names = this.#endNames.get(kind);
    if (names === undefined) {
      const labels = this.#labels(model);
      names = {
        answers: seriesKey('sluice_gateway_answers_total', { ...labels, outcome }),
        promptTokens: seriesKey('sluice_gateway_prompt_tokens_total', labels),
        cachedTokens: seriesKey('sluice_gateway_cached_prompt_tokens_total', labels),
      };
      this.#endNames.set(kind, names);
    }
    this.#series.add(names.answers);
    this.#series.add(names.promptTokens, used.promptTokens);
    this.#series.add(names.cachedTokens, used.cachedTokens);
    if (outcome === 'finished') this.#requestTime.observe(model, () => this.#labels(model), Math.max(0, now - submittedAt) / 1000);
  }

  redisLost(connection: string): void {
    this.#series.add(seriesKey('sluice_gateway_redis_connections_lost_total', { broker: this.#broker, connection }));
  }

  entries(gauges: BrokerGauges): SeriesEntry[] {
    const broker = { broker: this.#broker };
    return [
      ...this.#handedOver.entries(),
      ...this.#series.entries(),
      ...[...this.#relayedTokens].map(
        ([model, count]): SeriesEntry => [seriesKey('sluice_gateway_relayed_tokens_total', this.#labels(model)), count],
      ),
      ...this.#ttft.entries(),
      ...this.#queueTime.entries(),
      ...this.#requestTime.entries(),
      [seriesKey('sluice_gateway_open_requests', broker), gauges.openRequests],
      [seriesKey('sluice_gateway_open_streams', broker), gauges.openStreams],
      [seriesKey('sluice_gateway_held_requests', broker), gauges.heldRequests],
      [seriesKey('sluice_gateway_buffered_bytes', broker), gauges.bufferedBytes],
      ...Object.entries(gauges.redisUp).map(
        ([connection, isUp]): SeriesEntry => [seriesKey('sluice_gateway_redis_up', { ...broker, connection }), isUp ? 1 : 0],
      ),
    ];
  }

  #labels(model: string): { broker: string; model: string } {
    return { broker: this.#broker, model };
  }
}
