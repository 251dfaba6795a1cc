import { Counter, Histogram, Registry } from 'prom-client';
import { expect, test } from 'vitest';
import { MetricsPage } from '../../bench/metrics-page.ts';

test('a page of prom-client is read by name, label sets added up', async () => {
  const registry = new Registry();
  registry.setDefaultLabels({ model_name: 'a "b" {c} d' });
  const ended = new Counter({ name: 'ended_total', help: 'x', labelNames: ['reason'], registers: [registry] });
  ended.inc({ reason: 'stop' }, 2);
  ended.inc({ reason: 'length' }, 3);
  new Histogram({ name: 'seconds', help: 'x', buckets: [0.1, 1], registers: [registry] }).observe(0.5);
  const page = new MetricsPage(await registry.metrics());
  expect(page.total('ended_total')).toBe(5);
  expect(page.total('seconds_sum')).toBe(0.5);
  expect(page.total('seconds_count')).toBe(1);
});

test('what was never counted is an error, not zero', () => {
  expect(() => new MetricsPage('# HELP x y\nx 1\n').total('y')).toThrow('no metric y');
});

test('numbers in every form, and a time stamp behind them', () => {
  const page = new MetricsPage('a 1e3\nb{x="y"} +Inf 1700000000000\nc -2.5\n');
  expect([page.total('a'), page.total('c')]).toEqual([1000, -2.5]);
  expect(page.total('b')).toBe(Number.NaN);
});

test('a line that is no sample is refused', () => {
  expect(() => new MetricsPage('<html>')).toThrow('not a line of metrics');
});
