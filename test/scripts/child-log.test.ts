import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ChildLog } from '../../scripts/supervisor/child-log.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-log-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

it('stays bounded and keeps the newest lines', () => {
  const path = join(folder, 'child.log');
  const log = new ChildLog(path, 1000);
  for (let line = 0; line < 1000; line += 1) log.write(`line ${line}`);
  expect(readdirSync(folder).sort()).toEqual(['child.log', 'child.log.1']);
  for (const name of readdirSync(folder)) expect(statSync(join(folder, name)).size).toBeLessThanOrEqual(1000);
  expect(readFileSync(path, 'utf8')).toMatch(/line 999\n$/);
});

it('goes on where an earlier run ended, and is its owner’s only', () => {
  const path = join(folder, 'child.log');
  new ChildLog(path).write('first');
  new ChildLog(path).write('second');
  expect(readFileSync(path, 'utf8')).toBe('first\nsecond\n');
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

it('a lost log file does not throw', () => {
  const log = new ChildLog(join(folder, 'gone', 'child.log'), 10);
  rmSync(join(folder, 'gone'), { recursive: true });
  expect(() => {
    for (let line = 0; line < 5; line += 1) log.write('a long enough line');
  }).not.toThrow();
});
