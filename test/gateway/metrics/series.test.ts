/** Series and RequestCounts: nothing is counted twice, nothing gets lost on its way, and the page is what Prometheus reads. */
import { describe, expect, test, vi } from 'vitest';
import { metricsPage } from '../../../gateway/metrics/families.ts';
import { RequestCounts } from '../../../gateway/metrics/request-counts.ts';
import { Histograms, Series, type SeriesEntry, seriesKey } from '../../../gateway/metrics/series.ts';

const refused = { route: '/v1/models', method: 'GET', status: 401, code: 'invalid_api_key', headMs: 3 };

describe('series', () => {
  test('what is taken is taken away', () => {
    const series = new Series();
    series.add('a');
    series.add('a', 2);
    expect(series.take()).toEqual([['a', 3]]);
    expect(series.take()).toEqual([]);
  });

  test('a flood of names fills no memory', () => {
    const series = new Series();
    for (let i = 0; i < 20_000; i++) series.add(`a${i}`);
    series.add('a0', 4);
    expect(series.entries().length).toBe(10_000);
    expect(series.entries()[0]).toEqual(['a0', 5]);
  });

  test('label values are escaped', () => {
    expect(seriesKey('n', { a: 'q"\\\n' })).toBe('n{a="q\\"\\\\\\n"}');
    expect(seriesKey('n', {})).toBe('n');
  });

  test('buckets add up, the bound itself within', () => {
    const histograms = new Histograms('h', [1, 2]);
    for (const value of [0.5, 1, 1.5, 7]) histograms.observe('m', () => ({ model: 'm' }), value);
    expect(histograms.entries()).toEqual([
      ['h_bucket{model="m",le="1"}', 2],
      ['h_bucket{model="m",le="2"}', 3],
      ['h_bucket{model="m",le="+Inf"}', 4],
      ['h_sum{model="m"}', 10],
      ['h_count{model="m"}', 4],
    ]);
  });
});

describe('request counts', () => {
  test('stay until somebody takes them', async () => {
    const counts = new RequestCounts();
    counts.count(refused);
    await expect(counts.handOver(() => Promise.reject(new Error('away')))).rejects.toThrow('away');
    counts.count({ ...refused, method: 'PROPFIND' });
    const taken: SeriesEntry[] = [];
    const take = async (entries: SeriesEntry[]) => void taken.push(...entries);
    await counts.handOver(take);
    await counts.handOver(take);
    const page = metricsPage(taken);
    expect(page).toContain('sluice_gateway_requests_total{route="/v1/models",method="GET",status="401"} 1\n');
    expect(page).toContain('sluice_gateway_requests_total{route="/v1/models",method="other",status="401"} 1\n');
    expect(page).toContain('sluice_gateway_refusals_total{code="invalid_api_key"} 2\n');
    expect(page).toContain('sluice_gateway_time_to_first_byte_seconds_count{route="/v1/models"} 2\n');
  });

  test('are handed over by themselves', async () => {
    vi.useFakeTimers();
    try {
      const counts = new RequestCounts();
      const taken: SeriesEntry[] = [];
      counts.count(refused);
      const handedOver = counts.handOverSoon(async entries => void taken.push(...entries), 0);
      counts.count(refused);
      await vi.runAllTimersAsync();
      await handedOver;
      expect(taken).toContainEqual(['sluice_gateway_refusals_total{code="invalid_api_key"}', 2]);
      expect(counts.handOverSoon(() => Promise.resolve(), 1)).toBeInstanceOf(Promise);
    } finally {
      vi.useRealTimers();
    }
  });

  test('one request hands over for all, another when that one was ended', () => {
    const counts = new RequestCounts();
    const handOver = () => Promise.resolve();
    expect(counts.handOverSoon(handOver, 0)).toBeInstanceOf(Promise);
    expect(counts.handOverSoon(handOver, 1)).toBeUndefined();
    expect(counts.handOverSoon(handOver, 60_000)).toBeInstanceOf(Promise);
  });
});

test('the page has each family in one piece, and leaves out what it does not know', () => {
  const page = metricsPage([
    ['sluice_gateway_open_streams{broker="main-0"}', 1],
    ['sluice_gateway_redis_up{broker="main-0",connection="tail"}', 1],
    ['sluice_gateway_open_streams{broker="main-1"}', 2],
    ['sluice_gateway_open_streams{broker="main-0"}', 3],
    ['sluice_of_tomorrow', 3],
  ]);
  expect(page).toBe(`# HELP sluice_gateway_open_streams Replies that are open for them.
# TYPE sluice_gateway_open_streams gauge
sluice_gateway_open_streams{broker="main-0"} 4
sluice_gateway_open_streams{broker="main-1"} 2
# HELP sluice_gateway_redis_up Whether the connection to Redis is there.
# TYPE sluice_gateway_redis_up gauge
sluice_gateway_redis_up{broker="main-0",connection="tail"} 1
`);
});
