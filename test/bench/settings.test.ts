import { expect, test } from 'vitest';
import { readSettings, type SettingSpecs, UsageError } from '../../bench/settings.ts';

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
