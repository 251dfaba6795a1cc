/**
 * Test: `npm test [-- vitest's arguments]`: makes sure of Redis and of the default model, runs Vitest, and prints as its very last line
 * `N passed, N failed`; exit code 0 only when nothing failed.
 *
 * Tests find what was made ready in the environment: SLUICE_TEST_REDIS_SERVER (program), SLUICE_TEST_GGUF (file) and SLUICE_TEST_MODEL_DIR
 * (the same, prepared).
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureRedisBinary } from './supervisor/redis-binary.ts';
import { runToEnd } from './supervisor/run-to-end.ts';
import { Screen } from './supervisor/screen.ts';
import { prepareStartModel } from './supervisor/start-model.ts';
import { readTally, type TestTally, tallyLine } from './supervisor/test-tally.ts';

const PROJECT = join(import.meta.dirname, '..');

const screen = new Screen();
const tally = await main();
process.stdout.write(`${tallyLine(tally)}\n`, () => process.exit(tally.failedCount === 0 ? 0 : 1));

async function main(): Promise<TestTally> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-test-'));
  try {
    const redis = await ensureRedisBinary(line => screen.note(line));
    const model = await prepareStartModel({}, screen);
    const report = join(folder, 'report.json');
    const exitCode = await runToEnd(
      [
        process.execPath,
        join(PROJECT, 'node_modules', 'vitest', 'vitest.mjs'),
        'run',
        '--reporter=default',
        '--reporter=json',
        `--outputFile.json=${report}`,
        ...process.argv.slice(2),
      ],
      {
        folder: PROJECT,
        environment: { SLUICE_TEST_REDIS_SERVER: redis, SLUICE_TEST_GGUF: model.ggufPath, SLUICE_TEST_MODEL_DIR: model.directory },
      },
    );
    return readTally(report, exitCode);
  } catch (thrown) {
    screen.error(
      thrown instanceof Error && /^(Start|Model)Error$/.test(thrown.name) ? thrown.message : String((thrown as Error)?.stack ?? thrown),
    );
    return { passedCount: 0, failedCount: 1, skippedCount: 0 };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
