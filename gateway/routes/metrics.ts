/** GET /metrics: what the Worker and all its brokers have counted, in Prometheus' text format; for the operator unless the settings open it. */
import type { Context } from 'hono';
import { KeyReader } from '../api-key.ts';
import type { AppEnv } from '../app-env.ts';
import { callBroker, heldRequests, type MetricsRequest, shards } from '../broker-call.ts';
import type { Settings } from '../env.ts';
import { METRICS_CONTENT_TYPE, metricsPage } from '../metrics/families.ts';
import { handOverTo } from '../metrics/hand-over.ts';
import { checkMetricsReader } from '../metrics/reader.ts';
import type { RequestCounts } from '../metrics/request-counts.ts';
import type { SeriesEntry } from '../metrics/series.ts';

export function metrics(counts: RequestCounts, settings: Settings) {
  const reader = new KeyReader(settings);
  return async function readMetrics(c: Context<AppEnv>): Promise<Response> {
    await checkMetricsReader(c, settings, reader);
    // This isolate's now; those of others come when they have handed them over.
    await counts.handOver(handOverTo(c, settings)).catch(() => undefined);
    const held = await heldRequests(c, settings);
    const pages = await Promise.allSettled(shards(settings).map((shard, index) => entriesOf(c, shard, index === 0 ? { held } : {})));
    const entries = pages.flatMap(page => (page.status === 'fulfilled' ? page.value : []));
    const missing = pages.filter(page => page.status === 'rejected').length;
    return c.body(metricsPage([...entries, ['sluice_gateway_brokers_unreachable', missing]]), 200, {
      'content-type': METRICS_CONTENT_TYPE,
      'cache-control': 'no-store',
    });
  };
}

async function entriesOf(c: Context<AppEnv>, shard: string, body: MetricsRequest): Promise<SeriesEntry[]> {
  const reply = await callBroker(c, shard, { path: '/metrics', body });
  if (!reply.ok) throw new Error(`The broker ${shard} does not answer: ${reply.status}.`);
  return await reply.json();
}
