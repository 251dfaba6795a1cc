import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parseTrace } from '../../planner/trace.ts';
import { readTrace, TRACE_NAMES } from '../../planner/trace-file.ts';

const AZURE = 'TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n';
const mooncake = (row: Record<string, unknown>) =>
  JSON.stringify({ timestamp: 0, input_length: 600, output_length: 5, hash_ids: [3, 4], ...row });

test("Azure's form: columns by name, times from the first request", () => {
  const { requests, blockTokens } = parseTrace(AZURE);
  expect(requests.map(({ promptTokens, completionTokens }) => [promptTokens, completionTokens])).toEqual([
    [374, 44],
    [396, 109],
  ]);
  expect(requests[0]!.atMs).toBe(0);
  expect(requests[1]!.atMs).toBeCloseTo(4314.579, 2);
  expect(blockTokens).toBeUndefined();
  expect(parseTrace('GeneratedTokens,x,ContextTokens\n7,?,9').requests).toEqual([{ atMs: 0, promptTokens: 9, completionTokens: 7 }]);
});

test("Mooncake's form: prefix identity, in order of time", () => {
  const { requests, blockTokens } = parseTrace(`${mooncake({ timestamp: 30 })}\n${mooncake({ timestamp: 10, hash_ids: [3, 9] })}\n`);
  expect(requests).toEqual([
    { atMs: 0, promptTokens: 600, completionTokens: 5, blockIds: [3, 9] },
    { atMs: 20, promptTokens: 600, completionTokens: 5, blockIds: [3, 4] },
  ]);
  expect(blockTokens).toBe(512);
});

test.each([
  ['another header', 'a,b\n1,2', 'no column ContextTokens'],
  ['a row without a number', `${AZURE}2023-11-16 18:15:50,x,1`, 'row 3 of the trace has no token counts'],
  ['a row without a time', `${AZURE}yesterday,1,1`, 'row 3 of the trace has no time'],
  ['a cut row', `${AZURE}2023,5`, 'row 3'],
  ['no rows', 'ContextTokens,GeneratedTokens\n', 'no rows'],
  ['nothing', '', 'no column'],
  ['JSON that is cut', `${mooncake({})}\n{"timestamp":`, 'row 2 of the trace has no JSON'],
  ['too few block ids', mooncake({ hash_ids: [1] }), 'hash_ids'],
  ['ids that are none', mooncake({ hash_ids: [1, 'x'] }), 'hash_ids'],
  ['lengths below one', mooncake({ output_length: 0 }), 'token counts'],
  ['a time before the start', mooncake({ timestamp: -1 }), 'time'],
])('%s is refused', (_, text, message) => {
  expect(() => parseTrace(text)).toThrow(message);
});

test.each(TRACE_NAMES)('of %s the project has a sample, and says that it is one', async name => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-traces-'));
  try {
    await expect(readTrace(name, folder)).rejects.toThrow('no file');
    const trace = await readTrace(join(import.meta.dirname, '..', '..', 'planner', 'samples', fileOf(name)));
    expect(trace.requests.length).toBeGreaterThanOrEqual(250);
    expect(trace.blockTokens).toBe(name.startsWith('mooncake') ? 512 : undefined);
    writeFileSync(join(folder, fileOf(name)), name.startsWith('mooncake') ? mooncake({}) : AZURE);
    expect((await readTrace(name, folder)).requests.length).toBe(name.startsWith('mooncake') ? 1 : 2);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a trace that is not there is one clear line', async () => {
  const error = await readTrace('/nowhere/trace.csv').then(
    () => undefined,
    thrown => thrown as Error,
  );
  expect(error?.name).toBe('PlanningError');
  expect(error?.message).toContain('/nowhere/trace.csv');
  expect(error?.message).not.toContain('\n');
});

function fileOf(name: string): string {
  return name.startsWith('mooncake') ? `${name}.jsonl` : `${name.replace('azure', 'azure-2023')}.csv`;
}
