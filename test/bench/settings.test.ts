import { expect, test } from 'vitest';
import { readSettings, type SettingSpecs, settingsHelp, UsageError } from '../../bench/settings.ts';

const SPECS = {
  threads: { kind: 'count', default: 2, min: 1, max: 8, help: '' },
  batches: { kind: 'counts', default: [1, 2], min: 1, max: 32, help: '' },
  model: { kind: 'text', default: '', help: '' },
} as const satisfies SettingSpecs;

test('what is not given has its default', () => {
  expect(readSettings(SPECS, {})).toEqual({ threads: 2, batches: [1, 2], model: '' });
});

test('what is given is read by kind', () => {
  expect(readSettings(SPECS, { threads: '8', batches: '4,32', model: 'a.gguf' })).toEqual({
    threads: 8,
    batches: [4, 32],
    model: 'a.gguf',
  });
});

test.each(['0', '9', '1.5', '', 'two', '1e999', 'NaN', '-1'])('--threads %j is refused, naming the bounds', text => {
  expect(() => readSettings(SPECS, { threads: text })).toThrow(UsageError);
  expect(() => readSettings(SPECS, { threads: text })).toThrow('from 1 to 8');
});

test.each(['1,', ',', '1,33'])('--batches %j is refused', text => {
  expect(() => readSettings(SPECS, { batches: text })).toThrow('from 1 to 32');
});

test.each(['thread', 'toString', '__proto__'])('unknown option %s is refused, naming the known ones', name => {
  expect(() => readSettings(SPECS, Object.fromEntries([[name, '1']]))).toThrow('--threads, --batches, --model');
});

const MORE = {
  rate: { kind: 'number', default: 0.5, min: 0.1, max: 10, help: '' },
  slo: { kind: 'duration', default: 2_000, min: 1, max: 60_000, help: '' },
  arrivals: { kind: 'choice', default: 'poisson', of: ['poisson', 'trace'], help: '' },
} as const satisfies SettingSpecs;

test('rates, times and choices are read by kind', () => {
  expect(readSettings(MORE, {})).toEqual({ rate: 0.5, slo: 2_000, arrivals: 'poisson' });
  expect(readSettings(MORE, { rate: '2.25', slo: '1.5s', arrivals: 'trace' })).toEqual({ rate: 2.25, slo: 1_500, arrivals: 'trace' });
  expect(['100ms', '1m', '7'].map(slo => readSettings(MORE, { slo }).slo)).toEqual([100, 60_000, 7]);
});

test.each([
  ['rate', ['0', '11', '', 'x', 'Infinity'], 'from 0.1 to 10'],
  ['slo', ['0', '2m', '1h', 's', '-1s', '1 s', ''], 'from 1ms to 1m'],
  ['arrivals', ['Poisson', ''], 'one of poisson, trace'],
])('a bad --%s is refused, naming the rule', (name, texts, rule) => {
  for (const text of texts) expect(() => readSettings(MORE, { [name]: text })).toThrow(rule);
});

test('a default can follow from another setting, and is told by its words', () => {
  const specs = {
    wait: {
      kind: 'duration',
      default: { text: 'half of --slo', from: others => Number(others.slo) / 2 },
      min: 0,
      max: 60_000,
      help: 'longest',
    },
    slo: MORE.slo,
  } as const satisfies SettingSpecs;
  const waits = [{}, { slo: '1s' }, { slo: '1s', wait: '20ms' }].map(given => readSettings(specs, given).wait);
  expect(waits).toEqual([1_000, 500, 20]);
  expect(settingsHelp(specs)[0]).toContain('longest (default half of --slo)');
  expect(() => readSettings(specs, { wait: '2m' })).toThrow('from 0ms to 1m');
});
