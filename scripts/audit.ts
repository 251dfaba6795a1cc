/**
 * Audit: `npm run audit`: asks the package registry for known weaknesses of what runs in production. Exit code 1 when one is high or critical.
 * A registry that cannot be reached, or that keeps no advisories, says nothing about the packages: that is told, and no failure.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { judgeAudit } from './supervisor/audit-report.ts';

const PROJECT = join(import.meta.dirname, '..');
const LIMIT_MS = 60_000;

const output = await new Promise<string>(resolve => {
  const options = { cwd: PROJECT, timeout: LIMIT_MS, maxBuffer: 64 << 20 };
  // Its exit code says only that something was found, or that something went wrong.
  execFile('npm', ['audit', '--omit=dev', '--json', '--fetch-retries=1'], options, (_error, stdout) => resolve(stdout));
});
const { isBad, lines } = judgeAudit(output);
process.stdout.write(`${lines.join('\n')}\n`);
process.exit(isBad ? 1 : 0);
