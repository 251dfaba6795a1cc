/** Check: `npm run check`: type check, lint and the architecture test; runs all of them, then exits 1 when any has failed. */
import { join } from 'node:path';
import { runToEnd } from './supervisor/run-to-end.ts';

const PROJECT = join(import.meta.dirname, '..');

const CHECKS: readonly [name: string, program: string, ...args: string[]][] = [
  ['types', 'node_modules/typescript/bin/tsc', '-b'],
  ['lint', 'node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings'],
  ['architecture', 'node_modules/vitest/vitest.mjs', 'run', '--project=unit', 'test/architecture.test.ts'],
];

const failed: string[] = [];
for (const [name, program, ...args] of CHECKS) {
  process.stdout.write(`${name} …\n`);
  if ((await runToEnd([process.execPath, join(PROJECT, program), ...args], { folder: PROJECT })) !== 0) failed.push(name);
}
process.stdout.write(failed.length === 0 ? 'All checks passed.\n' : `Failed: ${failed.join(', ')}.\n`);
process.exit(failed.length === 0 ? 0 : 1);
