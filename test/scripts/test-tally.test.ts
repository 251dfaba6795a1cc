import { expect, it } from 'vitest';
import { readTally, tallyLine, tallyOf } from '../../scripts/supervisor/test-tally.ts';

const file = (status: string, ...statuses: string[]) => ({ status, assertionResults: statuses.map(each => ({ status: each })) });
const line = (files: ReturnType<typeof file>[], exitCode: number) => tallyLine(tallyOf({ testResults: files }, exitCode));

it.each([
  ['all passed', [file('passed', 'passed', 'passed')], 0, '2 passed, 0 failed'],
  ['some failed', [file('failed', 'passed', 'failed'), file('passed', 'passed')], 1, '2 passed, 1 failed'],
  ['some skipped', [file('passed', 'passed', 'pending', 'todo', 'skipped')], 0, '1 passed, 0 failed, 3 skipped'],
  ['a file that could not be loaded', [file('failed'), file('passed', 'passed')], 1, '1 passed, 1 failed'],
  ['a hook failed after its tests had passed', [file('failed', 'passed')], 1, '1 passed, 1 failed'],
  ['an error outside any test', [file('passed', 'passed')], 1, '1 passed, 1 failed'],
  ['no test at all', [], 0, '0 passed, 1 failed'],
])('%s', (_what, files, exitCode, expected) => {
  expect(line(files, exitCode)).toBe(expected);
});

it('no report', () => {
  expect(tallyLine(readTally('/no/such/report', 0))).toBe('0 passed, 1 failed');
});
