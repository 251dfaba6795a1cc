/** Families: every metric of the gateway, with its kind and its meaning, and how a page of them is printed. */
import type { SeriesEntry } from './series.ts';

interface Family {
  kind: 'counter' | 'gauge' | 'histogram';
  help: string;
}

export const FAMILIES = {
  sluice_gateway_requests_total: { kind: 'counter', help: 'Requests, by route, method and status of the reply.' },
  sluice_gateway_refusals_total: { kind: 'counter', help: 'Replies that are an error, by its code.' },
  sluice_gateway_time_to_first_byte_seconds: {
    kind: 'histogram',
    help: "From a request to the head of its reply, by route; a stream's head goes out while it waits.",
  },
  sluice_gateway_time_to_first_token_seconds: { kind: 'histogram', help: 'From a request to its first token, as its broker gets it.' },
  sluice_gateway_queue_time_seconds: { kind: 'histogram', help: 'From a request until a batcher has accepted it.' },
  sluice_gateway_request_seconds: { kind: 'histogram', help: 'From a request to the end of its answer, of those that were finished.' },
  sluice_gateway_answers_total: { kind: 'counter', help: 'Jobs that ended, by outcome: finished, or the code of the error.' },
  sluice_gateway_relayed_tokens_total: { kind: 'counter', help: 'Generated tokens that came from batchers.' },
  sluice_gateway_prompt_tokens_total: { kind: 'counter', help: 'Prompt tokens of jobs that ended.' },
  sluice_gateway_cached_prompt_tokens_total: { kind: 'counter', help: 'Of them, those that came from a prefix cache.' },
  sluice_gateway_open_requests: { kind: 'gauge', help: 'Jobs that wait or run.' },
  sluice_gateway_open_streams: { kind: 'gauge', help: 'Replies that are open for them.' },
  sluice_gateway_held_requests: { kind: 'gauge', help: 'Requests that wait for a batcher to come.' },
  sluice_gateway_buffered_bytes: { kind: 'gauge', help: 'What slow clients have not read yet.' },
  sluice_gateway_redis_up: { kind: 'gauge', help: 'Whether the connection to Redis is there.' },
  sluice_gateway_redis_connections_lost_total: { kind: 'counter', help: 'How often it was lost.' },
  sluice_gateway_queued_jobs: { kind: 'gauge', help: "Jobs in a model's queues that no batcher has taken." },
  sluice_gateway_batchers: { kind: 'gauge', help: 'Batchers, by state.' },
  sluice_gateway_desired_batchers: { kind: 'gauge', help: 'Batchers that a model needs, by its requests and its queue.' },
  sluice_gateway_request_rate: { kind: 'gauge', help: "Requests a second that a model's batchers take, over about the last minute." },
  sluice_gateway_knee_ratio: {
    kind: 'gauge',
    help: 'That rate beside what all serving batchers sustain under the latency objectives of SLUICE_KNEE; 1 is at the knee.',
  },
  sluice_gateway_queue_seconds: {
    kind: 'gauge',
    help: 'Until the requests that wait now have been taken, at the rate that batchers sustain.',
  },
  sluice_gateway_brokers_unreachable: { kind: 'gauge', help: 'Broker objects that are not in this page.' },
} as const satisfies Record<string, Family>;

export type FamilyName = keyof typeof FAMILIES;

export const METRICS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Prometheus' text format: each family in one piece. Entries of one key are added up. */
export function metricsPage(entries: readonly SeriesEntry[]): string {
  const byFamily = new Map<string, Map<string, number>>();
  for (const [key, value] of entries) {
    const family = familyOf(key);
    if (family === undefined) continue;
    const series = byFamily.get(family) ?? new Map<string, number>();
    series.set(key, (series.get(key) ?? 0) + value);
    byFamily.set(family, series);
  }
  let page = '';
  for (const [name, { kind, help }] of Object.entries(FAMILIES)) {
    const series = byFamily.get(name);
    if (series === undefined) continue;
    page += `# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n`;
    for (const [key, value] of series) page += `${key} ${value}\n`;
  }
  return page;
}

/** Undefined for one that another version of the gateway counted. */
function familyOf(key: string): FamilyName | undefined {
  const brace = key.indexOf('{');
  const name = brace === -1 ? key : key.slice(0, brace);
  if (Object.hasOwn(FAMILIES, name)) return name as FamilyName;
  const base = name.replace(/_(bucket|sum|count)$/, '');
  return Object.hasOwn(FAMILIES, base) ? (base as FamilyName) : undefined;
}
