/** A disk that is full while a model is prepared: one line that says so, nothing left behind, and the next try on a disk with room works. */
import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { writeGguf } from './gguf-writer.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { tinyLlama } from './tiny-llama.ts';

const SCRIPT = join(import.meta.dirname, '..', '..', '..', 'scripts', 'model.ts');

test.each([1, 32, 700])('at %i KiB', async kibibytes => {
  const folder = await temporaryFolder();
  const path = await writeGguf(join(folder, 'tiny.gguf'), tinyLlama());
  const cache = join(folder, 'cache');
  // A write past the limit on file size then fails like one on a full disk, and does not end the process.
  const prepare = (limit: string) =>
    run('bash', ['-c', `trap '' XFSZ; ulimit -f ${limit}; exec "$@"`, 'bash', process.execPath, SCRIPT, 'prepare', path, '--cache', cache]);
  const failed = await prepare(String(kibibytes));
  expect(failed.code).toBe(2);
  expect(failed.stderr.trim().split('\n').at(-1)).toMatch(/tiny\.gguf: could not be prepared \(E(FBIG|NOSPC)/);
  expect((await readdir(join(cache, 'models')).catch(() => [])).filter(name => name !== 'sources')).toEqual([]);
  expect(await prepare('unlimited')).toMatchObject({ code: 0 });
  expect(await readdir(join(cache, 'models'))).toHaveLength(1);
});

function run(command: string, args: readonly string[]): Promise<{ code: number | null; stderr: string }> {
  return new Promise(resolve => {
    const child = execFile(command, args, (_error, _stdout, stderr) => resolve({ code: child.exitCode, stderr }));
  });
}
