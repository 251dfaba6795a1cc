/** TestTally: how many tests passed and failed, out of Vitest's JSON report; what failed outside any test counts as a failure too. */
import { readFileSync } from 'node:fs';

export interface TestTally {
  passedCount: number;
  failedCount: number;
  skippedCount: number;
}

interface Report {
  testResults: { status: string; assertionResults: { status: string }[] }[];
}

/** A missing or broken report is one failure. */
export function readTally(path: string, exitCode: number): TestTally {
  let report: Report;
  try {
    report = JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return { passedCount: 0, failedCount: 1, skippedCount: 0 };
  }
  return tallyOf(report, exitCode);
}

export function tallyOf(report: Report, exitCode: number): TestTally {
  const tally = { passedCount: 0, failedCount: 0, skippedCount: 0 };
  for (const file of report.testResults) {
    const failedBefore = tally.failedCount;
    for (const { status } of file.assertionResults) {
      if (status === 'passed') tally.passedCount += 1;
      else if (status === 'failed') tally.failedCount += 1;
      else tally.skippedCount += 1;
    }
    // A file that could not be loaded, or whose hooks failed, has no failed test of its own.
    if (file.status === 'failed' && tally.failedCount === failedBefore) tally.failedCount += 1;
  }
  // An error outside any file, or no test at all.
  if (tally.failedCount === 0 && (exitCode !== 0 || tally.passedCount === 0)) tally.failedCount = 1;
  return tally;
}

export function tallyLine({ passedCount, failedCount, skippedCount }: TestTally): string {
  return `${passedCount} passed, ${failedCount} failed${skippedCount > 0 ? `, ${skippedCount} skipped` : ''}`;
}
