import { expect, test } from 'vitest';
import { SCHEDULER_KNOBS, schedulerSettings } from '../../../batcher/scheduler/scheduler-settings.ts';

test('the defaults obey their own rules', () => {
  const settings = schedulerSettings();
  for (const [name, knob] of Object.entries(SCHEDULER_KNOBS)) {
    expect(settings[name as keyof typeof settings]).toBe(knob.default);
    expect(knob.unit.length).toBeGreaterThan(0);
    expect(knob.about.length).toBeGreaterThan(20);
  }
});

test.each([
  [{ maxRunning: 0 }, 'maxRunning'],
  [{ chunkTokens: 2.5 }, 'chunkTokens'],
  [{ admissionWatermark: 0.6 }, 'admissionWatermark'],
  [{ ageingMs: Number.NaN }, 'ageingMs'],
  [{ maxRunning: 500, maxBatchedTokens: 512 }, 'maxBatchedTokens'],
  [{ maxRuning: 3 } as object, 'maxRuning'],
])('%j is refused by name', (values, name) => {
  expect(() => schedulerSettings(values)).toThrow(name);
});
