import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { readServiceCurves } from '../../planner/service-curves.ts';
import { SimulatedEngine } from '../../planner/simulated-engine.ts';
import { CURVES } from './curves.ts';

const folder = mkdtempSync(join(tmpdir(), 'sluice-curves-'));
afterAll(() => rmSync(folder, { recursive: true }));

function fileOf(content: unknown): string {
  const path = join(folder, 'curves.json');
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

test('what was kept is read, its points put in order', async () => {
  expect(await readServiceCurves(fileOf({ ...CURVES, decode: CURVES.decode.toReversed(), prefill: CURVES.prefill.toReversed() }))).toEqual(
    CURVES,
  );
});

test.each([
  ['no JSON', '{"version":', 'is not JSON'],
  ['another version', { ...CURVES, version: 2 }, 'version'],
  ['no decode steps', { ...CURVES, decode: [] }, 'decode'],
  ['a time below zero', { ...CURVES, copyMsPerToken: -1 }, 'copyMsPerToken'],
  ['a field that nobody knows', { ...CURVES, speed: 1 }, 'speed'],
  ['a batch of no rows', { ...CURVES, decode: [{ rows: 0, ms: 1, msPerContextToken: 0 }] }, 'decode.0.rows'],
  ['the same batch twice', { ...CURVES, decode: [CURVES.decode[0], CURVES.decode[0]] }, 'decode'],
])('%s is refused, naming the file and the field', async (_, content, words) => {
  const path = fileOf(content);
  const error = await readServiceCurves(path).then(
    () => undefined,
    thrown => thrown as Error,
  );
  expect(error?.name).toBe('PlanningError');
  expect(error?.message).toContain(path);
  expect(error?.message).toContain(words);
});

test('a file that is not there says how to make one', async () => {
  await expect(readServiceCurves(join(folder, 'none.json'))).rejects.toThrow('--host measured');
});

test('times lie on the lines between what was measured', () => {
  const engine = new SimulatedEngine(CURVES, 64);
  // The path's 2 ms are measured of one row, and hold for more.
  expect(engine.decodeMs(1, 0)).toBe(18);
  expect(engine.decodeMs(1, 1_000)).toBe(19);
  expect(engine.decodeMs(20, 0)).toBe(92);
  expect(engine.decodeMs(64, 0)).toBeCloseTo(140 + (32 * 100) / 24 + 2);
  expect(engine.prefillMs(0, 8)).toBe(60);
  expect(engine.prefillMs(0, 72)).toBe(230);
  expect(engine.prefillMs(100, 16)).toBeCloseTo(60 + 2 + 1.6);
  expect(engine.copyMs(100)).toBe(1);
  const slower = new SimulatedEngine({ ...CURVES, path: { ...CURVES.path, prefillShare: { alone: 1.5, beside: 2 } } }, 1);
  expect(slower.prefillMs(100, 16)).toBeCloseTo(1.5 * engine.prefillMs(100, 16));
  expect(slower.prefillMs(100, 16, true)).toBeCloseTo(2 * engine.prefillMs(100, 16));
  expect(new SimulatedEngine({ ...CURVES, path: { ...CURVES.path, steps: [{ rows: 1, extraMs: -50 }] } }, 1).decodeMs(1, 0)).toBe(0);
});
