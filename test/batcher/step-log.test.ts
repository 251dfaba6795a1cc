import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import type { StepPlan } from '../../batcher/scheduler/step-plan.ts';
import { StepLog, type StepRecord } from '../../batcher/step-log.ts';
import { StepLogReader } from '../../bench/step-log-reader.ts';

const folder = mkdtempSync(join(tmpdir(), 'sluice-step-log-'));
afterAll(() => rmSync(folder, { recursive: true }));

const EMPTY: StepPlan = {
  ...{ step: 1, preempted: [], admitted: [], exhausted: [], saves: [], copies: [], loads: [], releases: [], releasedBlocks: [] },
  ...{ chunks: [], decode: [] },
};
const BUSY: StepPlan = {
  ...EMPTY,
  admitted: [{ sequenceId: 'a', cachedTokens: 16, resumed: false }],
  saves: [{ row: 1, firstBlock: 0, blockIds: [4, 5] }],
  copies: [{ from: 0, to: 1, tokens: 7 }],
  loads: [{ row: 2, firstBlock: 0, blockIds: [9] }],
  chunks: [
    {
      ...{ sequenceId: 'a', row: 2, start: 16, tokenIds: [1, 2, 3], purpose: 'prefill' },
      ...{ logitCount: 1, sample: true, choiceIds: ['a'] },
    },
  ],
  decode: [40, 2].map((position, index) => ({ sequenceId: `s${index}`, tokenId: 1, position, sample: true, reproducible: false })),
};

test('each step is a line: what it computed, and how long that took', async () => {
  const path = join(folder, 'steps.jsonl');
  const log = await StepLog.open(path, 16);
  const reader = new StepLogReader(path);
  log.add(EMPTY, { stepMs: 1, engineMs: 0, chunkMs: [] });
  log.add(BUSY, { stepMs: 30, engineMs: 25, chunkMs: [20] });
  await log.close();
  const [, busy] = await reader.take();
  expect(busy).toEqual<StepRecord>({
    ...{ at: expect.any(Number), stepMs: 30, engineMs: 25, rows: 2, contextTokens: 42, admitted: 1, copiedTokens: 55, dropped: 0 },
    chunks: [{ start: 16, tokens: 3, ms: 20, isVerification: false }],
  });

  const again = await StepLog.open(path, 16);
  again.add(EMPTY, { stepMs: 2, engineMs: 0, chunkMs: [] });
  await again.close();
  expect((await reader.take()).map(({ stepMs }) => stepMs)).toEqual([2]);
  expect(readFileSync(path, 'utf8').trim().split('\n')).toHaveLength(3);
});

test('a file that cannot be written is told at the start', async () => {
  await expect(StepLog.open(join(folder, 'none', 'steps.jsonl'), 16)).rejects.toThrow('ENOENT');
});

test('what cannot be written as fast as it comes is dropped and counted, and a reader of sums is told', async () => {
  const path = join(folder, 'flood.jsonl');
  const log = await StepLog.open(path, 16);
  let added = 0;
  const add = () => log.add(EMPTY, { stepMs: added++, engineMs: 0, chunkMs: [] });
  while (added < 20_000) add();
  // Once there is room again, the next line tells of those that were dropped.
  await vi.waitFor(() => {
    add();
    expect(readFileSync(path, 'utf8')).toMatch(/"dropped":[1-9]/);
  });
  await log.close();
  const lines = readFileSync(path, 'utf8').trim().split('\n');
  const records = lines.map(line => JSON.parse(line) as StepRecord);
  expect(records.length).toBeLessThan(added);
  expect(records.length + records.reduce((sum, { dropped }) => sum + dropped, 0)).toBe(added);
  await expect(new StepLogReader(path).take()).rejects.toThrow('could not write all');
});
