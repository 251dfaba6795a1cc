import { expect, test } from 'vitest';
import { planBench } from '../../bench/plan.ts';
import { batcherArguments, gatewayBindings, planSettings } from '../../bench/plan-settings.ts';
import { readSettings } from '../../bench/settings.ts';

test.each([
  [{}, 100],
  [{ 'tpot-slo': '60ms' }, 60],
  [{ 'tpot-slo': '12.9ms' }, 12],
  [{ 'tpot-slo': '1ms' }, 10],
  [{ 'tpot-slo': '1s' }, 150],
  [{ 'tpot-slo': '60ms', 'itl-slo': '200ms' }, 200],
])('with %j batchers keep to %d ms between tokens', (given, ms) => {
  expect(batcherArguments(readSettings(planSettings, given)).slice(-2)).toEqual(['--itl-slo', String(ms)]);
});

test('a plan is for gateways as they are by default, and beside a replay for such as refuse what would miss its objective', () => {
  expect(gatewayBindings(readSettings(planSettings, {}))).toEqual({ SLUICE_MAX_WAIT_MS: '120000' });
  const waitOf = (given: Record<string, string>) => gatewayBindings({ 'max-wait': readSettings(planBench.settings, given)['max-wait'] });
  expect(waitOf({})).toEqual({ SLUICE_MAX_WAIT_MS: '400' });
  expect(waitOf({ 'ttft-slo': '7s' })).toEqual({ SLUICE_MAX_WAIT_MS: '1400' });
  expect(waitOf({ 'max-wait': '0.4s' })).toEqual({ SLUICE_MAX_WAIT_MS: '400' });
});

test.each([
  [{ 'max-wait': '-1s' }, '--max-wait must be a time'],
  [{ 'max-wait': '25h' }, 'to 24h'],
  [{ 'itl-slo': '5ms' }, 'from 10ms'],
])('%j is refused, naming the rule', (given, rule) => {
  expect(() => readSettings(planSettings, given)).toThrow(rule);
});
