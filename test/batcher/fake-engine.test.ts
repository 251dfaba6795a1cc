/** The oracle itself: it must notice what it is there to notice. */
import { expect, test } from 'vitest';
import { argmax, FakeEngine, reference } from './fake-engine.ts';

const prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];

async function prefilled(kernels: 'same' | 'apart', cuts: number[]): Promise<FakeEngine> {
  const engine = new FakeEngine({ kernels, shape: { blockTokens: 4 } });
  let start = 0;
  for (const end of [...cuts, prompt.length]) {
    await engine.prefill({ row: 0, start, tokenIds: prompt.slice(start, end), logitCount: 0 });
    start = end;
  }
  return engine;
}

async function next(engine: FakeEngine, row: number): Promise<number> {
  await engine.prefill({ row, start: prompt.length, tokenIds: [8, 8], logitCount: 0 });
  return argmax(await engine.prefill({ row, start: prompt.length, tokenIds: [7, 7], logitCount: 1 }));
}

test('chunking changes nothing, a chunk of one token does', async () => {
  const bits = async (cuts: number[]): Promise<number> => (await prefilled('apart', cuts)).cells(0, 10).at(-1)!.bits;
  expect(await bits([4])).toBe(await bits([]));
  expect(await bits([2, 7])).toBe(await bits([]));
  expect(await bits([9])).not.toBe(await bits([]));
});

test('copies, saves and loads carry the content', async () => {
  const engine = await prefilled('apart', []);
  const expected = await next(engine, 0);
  engine.copyRow({ from: 0, to: 2, tokens: 10 });
  expect(await next(engine, 2)).toBe(expected);
  engine.saveBlocks({ row: 0, firstBlock: 0, blockIds: [5, 3] });
  engine.loadBlocks({ row: 4, firstBlock: 0, blockIds: [5, 3] });
  await engine.prefill({ row: 4, start: 8, tokenIds: prompt.slice(8), logitCount: 0 });
  expect(await next(engine, 4)).toBe(expected);
  engine.loadBlocks({ row: 5, firstBlock: 0, blockIds: [3, 5] });
  await engine.prefill({ row: 5, start: 8, tokenIds: prompt.slice(8), logitCount: 0 });
  expect(engine.cells(5, 10).at(-1)!.tokenId).toBe(3);
  expect(engine.cells(5, 10).at(-1)!.bits).not.toBe(engine.cells(4, 10).at(-1)!.bits);
});

test('blocks can be saved while a run leaves them alone', async () => {
  const engine = await prefilled('same', []);
  const block = { row: 0, firstBlock: 0, blockIds: [5, 3] };
  const appending = engine.prefill({ row: 0, start: 10, tokenIds: [1], logitCount: 0 });
  engine.saveBlocks(block);
  expect(() => engine.loadBlocks(block)).toThrow('is running');
  await appending;
  const overwriting = engine.prefill({ row: 0, start: 7, tokenIds: [1], logitCount: 0 });
  expect(() => engine.saveBlocks(block)).toThrow('is being written');
  await overwriting;
});

test('what was released or never written cannot be read', async () => {
  const engine = await prefilled('same', []);
  expect(() => engine.copyRow({ from: 0, to: 1, tokens: 11 })).toThrow('holds nothing');
  await expect(engine.decode({ tokenIds: [1, 1], positions: [10, 3] })).rejects.toThrow('Row 1 holds nothing');
  engine.releaseRow(0, 4);
  await expect(engine.decode({ tokenIds: [1], positions: [10] })).rejects.toThrow('holds nothing');
  expect(() => engine.loadBlocks({ row: 0, firstBlock: 0, blockIds: [1] })).toThrow('holds nothing');
  expect(() => engine.releaseBlocks([1])).toThrow('holds nothing');
});

test('padding a batch destroys the rows behind it', async () => {
  const engine = await prefilled('same', []);
  engine.copyRow({ from: 0, to: 1, tokens: 10 });
  await engine.decode({ tokenIds: [1], positions: [10], minRows: 2 });
  expect(() => engine.cells(1, 10)).toThrow('holds nothing');
  expect(engine.cells(0, 11)).toHaveLength(11);
});

test('one call at a time, none after close, failures on demand', async () => {
  const engine = await prefilled('same', []);
  const running = engine.decode({ tokenIds: [1], positions: [10] });
  expect(() => engine.copyRow({ from: 0, to: 1, tokens: 1 })).toThrow('running');
  await expect(engine.decode({ tokenIds: [1], positions: [10] })).rejects.toThrow('running');
  await running;
  engine.failNext(new Error('boom'));
  await expect(engine.decode({ tokenIds: [1], positions: [11] })).rejects.toThrow('boom');
  await engine.decode({ tokenIds: [1], positions: [11] });
  engine.close();
  expect(() => engine.releaseRow(0, 0)).toThrow('closed');
});

test('the reference is what the engine gives for prefill and then decode steps', async () => {
  const engine = await prefilled('apart', []);
  let logits = await engine.prefill({ row: 0, start: 8, tokenIds: prompt.slice(8), logitCount: 1 });
  const generated: number[] = [];
  for (let position = 10; position < 20; position += 1) {
    generated.push(argmax(logits));
    logits = await engine.decode({ tokenIds: [generated.at(-1)!], positions: [position], minRows: 2 });
  }
  const expected = reference(prompt, (row, position) => (position < 20 ? argmax(row) : undefined), { kernels: 'apart' });
  expect(generated).toEqual(expected);
  expect(new Set(generated).size).toBeGreaterThan(3);
});
