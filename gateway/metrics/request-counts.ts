/**
 * RequestCounts: the requests that one isolate of the Worker has answered, counted in its memory and handed to a broker now and then: by one
 * call for thousands of requests, and at once when somebody reads the metrics. A refusal costs no call.
 */
import type { HandOver } from './hand-over.ts';
import { Histograms, Series, seriesKey } from './series.ts';

export interface AnsweredRequest {
  /** As the app writes it, `/v1/models/:id`; undefined where there is no such URL. */
  route: string | undefined;
  method: string;
  status: number;
  /** Of the error that the reply is. */
  code: string | undefined;
  headMs: number;
}

const HAND_OVER_AFTER_MS = 5_000;
/** The request that was to hand over may have been ended by the runtime. */
const OVERDUE_MS = 4 * HAND_OVER_AFTER_MS;
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'DELETE', 'OPTIONS']);
const HEAD_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

export class RequestCounts {
  readonly #series = new Series();
  /** Names of the counters of one kind of request, which are longer to write than to count. */
  readonly #names = new Map<string, string[]>();
  readonly #heads = new Histograms('sluice_gateway_time_to_first_byte_seconds', HEAD_BUCKETS);
  #scheduledAt: number | undefined;

  count({ route = 'none', method, status, code, headMs }: AnsweredRequest): void {
    const known = METHODS.has(method) ? method : 'other';
    const kind = `${route} ${known} ${status} ${code ?? ''}`;
    let names = this.#names.get(kind);
    if (names === undefined) {
      names = [seriesKey('sluice_gateway_requests_total', { route, method: known, status: String(status) })];
      if (code !== undefined) names.push(seriesKey('sluice_gateway_refusals_total', { code }));
      this.#names.set(kind, names);
    }
    for (const name of names) this.#series.add(name);
    this.#heads.observe(route, () => ({ route }), headMs / 1000);
  }

  /** Resolves when what is counted by then has been handed over; undefined when another request sees to that. To be awaited past the reply. */
  handOverSoon(handOver: HandOver, now: number): Promise<void> | undefined {
    if (this.#scheduledAt !== undefined && now - this.#scheduledAt < OVERDUE_MS) return undefined;
    this.#scheduledAt = now;
    return new Promise(resolve => setTimeout(resolve, HAND_OVER_AFTER_MS)).then(async () => {
      this.#scheduledAt = undefined;
      await this.handOver(handOver).catch(() => undefined);
    });
  }

  /** Throws when nobody took them; they stay here then. */
  async handOver(handOver: HandOver): Promise<void> {
    const entries = [...this.#series.take(), ...this.#heads.take()];
    if (entries.length === 0) return;
    try {
      await handOver(entries);
    } catch (error) {
      this.#series.addAll(entries);
      throw error;
    }
  }
}
