import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { differencesFrom, type GuidellmBenchmark, readGuidellmReport } from '../../bench/peers/guidellm-report.ts';

/** By guidellm 0.3.1 against the gateway, shortened: three requests at 1 and at 2 at once, and two for more tokens than the model's context has. */
const SAVED = readFileSync(new URL('./guidellm-report.json', import.meta.url), 'utf8');

test("a saved report: requests, tokens and guidellm's own figures of each benchmark, in their order", () => {
  const [alone, together, refused] = readGuidellmReport(SAVED);
  expect(alone).toMatchObject({ streamCount: 1, completedCount: 3, erroredCount: 0, errors: [] });
  expect(together).toMatchObject({ streamCount: 2, completedCount: 3, erroredCount: 0, errors: [] });
  expect(alone?.requests.map(({ promptTokens, outputTokens }) => [promptTokens, outputTokens])).toEqual([
    [64, 8],
    [64, 8],
    [65, 8],
  ]);
  expect(alone?.ttftMs.p50).toBeCloseTo(269.54, 2);
  expect(alone?.interTokenMs.p99).toBeCloseTo(31, 2);
  expect(alone?.perOutputTokenMs.p50).toBeCloseTo(14.6, 2);
  expect(refused).toMatchObject({ streamCount: 1, completedCount: 0, erroredCount: 2, requests: [] });
  expect(refused?.errors[0]).toMatch(/^Client error '400 Bad Request' for url '[^\n]*'$/);
});

test('tokens/s of one request and of all together are told apart', () => {
  const [, together, refused] = readGuidellmReport(SAVED);
  expect(together?.perRequestOutputTokensPerSecondP50).toBeCloseTo(21.84, 2);
  expect(together?.aggregateOutputTokensPerSecond).toBeCloseTo(31.83, 2);
  expect(refused?.perRequestOutputTokensPerSecondP50).toBeNaN();
});

test('what is no report is refused in words', () => {
  expect(() => readGuidellmReport('{')).toThrow("guidellm's report cannot be read: ");
  expect(() => readGuidellmReport('{}')).toThrow("guidellm's report cannot be read: ");
  expect(() => readGuidellmReport('{"benchmarks":[{}]}')).toThrow("guidellm's report cannot be read: ");
});

test('requests that are not as they were asked for are counted, each kind by itself', () => {
  const [alone, , refused] = readGuidellmReport(SAVED) as [GuidellmBenchmark, GuidellmBenchmark, GuidellmBenchmark];
  const expected = { requestCount: 3, outputTokens: 8, promptTokens: [64, 64, 65] };
  const none = { missingCount: 0, outputTokensCount: 0, promptTokensCount: 0 };
  expect(differencesFrom(expected, alone)).toEqual(none);
  expect(differencesFrom({ ...expected, requestCount: 5 }, alone)).toEqual({ ...none, missingCount: 2 });
  expect(differencesFrom({ ...expected, outputTokens: 9 }, alone)).toEqual({ ...none, outputTokensCount: 3 });
  expect(differencesFrom({ ...expected, promptTokens: [64, 64, 64] }, alone)).toEqual({ ...none, promptTokensCount: 1 });
  expect(differencesFrom({ requestCount: 2, outputTokens: 9_000, promptTokens: [] }, refused)).toEqual(none);
  expect(() => differencesFrom({ ...expected, promptTokens: [64] }, alone)).toThrow('1 prompts were counted, and 3 requests completed');
});
