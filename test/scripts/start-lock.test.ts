import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { StartError } from '../../scripts/supervisor/start-error.ts';
import { acquireStartLock } from '../../scripts/supervisor/start-lock.ts';
import { firstLine } from './process-life.ts';

const MODULE = pathToFileURL(join(import.meta.dirname, '../../scripts/supervisor/start-lock.ts')).href;
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-lock-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

function holder() {
  const program = `import { acquireStartLock } from ${JSON.stringify(MODULE)};
    acquireStartLock(${JSON.stringify(folder)}); console.log('held'); setInterval(() => {}, 1000);`;
  return spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
}

it('a second holder is refused with the number of the first, and gets it after the release', () => {
  const lock = acquireStartLock(folder);
  expect(() => acquireStartLock(folder)).toThrow(StartError);
  expect(() => acquireStartLock(folder)).toThrow(`process ${process.pid}`);
  lock.release();
  acquireStartLock(folder).release();
  expect(readdirSync(folder)).toEqual([]);
});

it('another living process is respected; once it was killed its lock counts for nothing', async () => {
  const other = holder();
  expect(await firstLine(other)).toBe('held');
  expect(() => acquireStartLock(folder)).toThrow(`process ${other.pid}`);
  const ended = new Promise(resolve => other.once('exit', resolve));
  other.kill('SIGKILL');
  await ended;
  acquireStartLock(folder).release();
});

it('a later process with the same number is not taken for the holder', () => {
  writeFileSync(join(folder, 'start.lock'), `${process.pid} 1`);
  acquireStartLock(folder).release();
});

it('a lock of garbage counts for nothing', () => {
  writeFileSync(join(folder, 'start.lock'), 'garbage');
  const lock = acquireStartLock(folder);
  expect(existsSync(join(folder, 'start.lock'))).toBe(true);
  lock.release();
});

it('of many that come at once exactly one gets it, though a dead lock lies there', () => {
  const dead = spawnSync('true').pid;
  writeFileSync(join(folder, 'start.lock'), `${dead} 5`);
  const program = `import { acquireStartLock } from ${JSON.stringify(MODULE)};
    import { setTimeout as sleep } from 'node:timers/promises';
    try { acquireStartLock(process.argv[1]); console.log('got it'); await sleep(1500); } catch { console.log('refused'); }`;
  const script = `for i in 1 2 3 4 5 6; do "$0" --input-type=module -e "$1" "$2" & done; wait`;
  const { stdout } = spawnSync('sh', ['-c', script, process.execPath, program, folder], { encoding: 'utf8' });
  expect(stdout.match(/got it/g)).toHaveLength(1);
  expect(stdout.match(/refused/g)).toHaveLength(5);
});
