/** The engine on real onnxruntime with a tiny model: every way to the same keys and values gives the same logits, and close gives all back. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { KvType } from '../../../batcher/engine/engine.ts';
import { whyNoKernels } from '../../../batcher/engine/kernels/kernel-library.ts';
import { OrtEngine } from '../../../batcher/engine/ort-engine.ts';
import type { Kernels } from '../../../batcher/model/matrix-form.ts';
import { graphPathOf, type PreparedModel, prepareModel } from '../../../batcher/model/prepare.ts';
import { writeGguf } from '../model/gguf-writer.ts';
import { TINY, tinyLlama } from '../model/tiny-llama.ts';

let folder: string;
let model: PreparedModel;
let kvType: KvType;
let engine: OrtEngine;

function open(prepared = model, graphPath = graphPathOf(prepared, kvType)): OrtEngine {
  return new OrtEngine({
    graphPath,
    kernelPath: prepared.kernelPath,
    kvType,
    model: prepared.manifest.shape,
    threads: 1,
    spinning: false,
    rowCount: 6,
    contextTokens: TINY.context,
    blockTokens: 16,
    storeBlocks: 32,
  });
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-engine-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const TOKENS = Array.from({ length: 40 }, (_, i) => (i * 37 + 11) % 256);

/** A copy: the view is good until the next run only. */
const copyOf = (logits: Float32Array) => Float32Array.from(logits);

async function prompt(row: number, tokenIds = TOKENS): Promise<Float32Array> {
  return copyOf(await engine.prefill({ row, start: 0, tokenIds, logitCount: 1 }));
}

function expectClose(actual: Float32Array, expected: Float32Array): void {
  expect(actual).toHaveLength(expected.length);
  const worst = actual.reduce((max, value, i) => Math.max(max, Math.abs(value - expected[i]!)), 0);
  expect(worst).toBeLessThan(0.05);
}

/** What the host can run of it. */
const VARIANTS: readonly [Kernels, KvType][] = [
  ['stock', 'f32'],
  ...(whyNoKernels() === undefined ? (['f32', 'f16'] as const) : []).map((type): [Kernels, KvType] => ['tiled', type]),
];

describe.each(VARIANTS)('OrtEngine with %s kernels and a KV cache in %s', (kernels, type) => {
  beforeAll(async () => {
    kvType = type;
    model = await prepareModel(await writeGguf(`${folder}/${kernels}.gguf`, tinyLlama({ other: 'Q8_0' })), { cacheRoot: folder, kernels });
    expect(model.manifest.kernels).toBe(kernels);
  });
  beforeEach(() => {
    engine = open();
  });
  afterEach(() => engine.close());

  it.runIf(kernels === 'tiled')('gives the same bits by decode steps, by chunks of one token and in any batch', async () => {
    const whole = await prompt(0);
    await engine.prefill({ row: 0, start: 0, tokenIds: TOKENS.slice(0, 5), logitCount: 0 });
    await engine.prefill({ row: 1, start: 0, tokenIds: TOKENS.slice(0, 5), logitCount: 0 });
    for (const [at, tokenId] of TOKENS.entries()) {
      if (at >= 5) await engine.prefill({ row: 0, start: at, tokenIds: [tokenId], logitCount: 0 });
      if (at < 5) continue;
      const together = copyOf(await engine.decode({ tokenIds: [tokenId, tokenId, 7], positions: [at, at, 0] }));
      const alone = copyOf(await engine.decode({ tokenIds: [tokenId], positions: [at] }));
      expect(together.subarray(TINY.vocab, 2 * TINY.vocab)).toEqual(alone);
      if (at === TOKENS.length - 1) expect(alone).toEqual(whole);
    }
  });

  it('gives bitwise the same for every chunking of a prompt', async () => {
    const whole = await prompt(0);
    for (const cuts of [[20], [7, 30], [2, 4, 9, 33]]) {
      let start = 0;
      let logits = new Float32Array();
      for (const end of [...cuts, TOKENS.length]) {
        logits = copyOf(
          await engine.prefill({ row: 1, start, tokenIds: TOKENS.slice(start, end), logitCount: end === TOKENS.length ? 1 : 0 }),
        );
        start = end;
      }
      expect(logits).toEqual(whole);
    }
  });

  it('decodes what prefill of the same tokens gives', async () => {
    await engine.prefill({ row: 0, start: 0, tokenIds: TOKENS.slice(0, -1), logitCount: 0 });
    const decoded = copyOf(await engine.decode({ tokenIds: [TOKENS.at(-1)!], positions: [TOKENS.length - 1] }));
    expectClose(decoded, await prompt(1));
  });

  it('decodes each row of a batch as if it were alone, whatever lies beside it', async () => {
    const lengths = [3, 17, 32, 9];
    const rows = lengths.map(length => TOKENS.slice(0, length));
    for (const [row, tokenIds] of rows.entries()) await engine.prefill({ row, start: 0, tokenIds: tokenIds.slice(0, -1), logitCount: 0 });
    const batch = { tokenIds: rows.map(ids => ids.at(-1)!), positions: lengths.map(length => length - 1) };
    const together = copyOf(await engine.decode(batch));
    for (const [row, tokenIds] of rows.entries()) {
      const logits = together.subarray(row * TINY.vocab, (row + 1) * TINY.vocab);
      expectClose(logits, await prompt(5, tokenIds));
    }
    expect(await engine.decode({ tokenIds: batch.tokenIds.slice(0, 1), positions: batch.positions.slice(0, 1), minRows: 2 })).toEqual(
      together.subarray(0, TINY.vocab),
    );
  });

  it('gives the logits of several last positions, one row each', async () => {
    const last = copyOf(await engine.prefill({ row: 0, start: 0, tokenIds: TOKENS, logitCount: 3 }));
    expect(last).toHaveLength(3 * TINY.vocab);
    expectClose(last.subarray(0, TINY.vocab), await prompt(1, TOKENS.slice(0, -2)));
    expect(last.subarray(2 * TINY.vocab)).toEqual(await prompt(1));
  });

  it('goes on in a copied row, and from stored blocks in any order', async () => {
    const whole = await prompt(0);
    const rest = { start: 32, tokenIds: TOKENS.slice(32), logitCount: 1 };
    engine.copyRow({ from: 0, to: 4, tokens: 32 });
    expect(copyOf(await engine.prefill({ row: 4, ...rest }))).toEqual(whole);
    engine.saveBlocks({ row: 0, firstBlock: 0, blockIds: [9, 3] });
    engine.releaseRow(0, 0);
    engine.loadBlocks({ row: 2, firstBlock: 0, blockIds: [9, 3] });
    expect(copyOf(await engine.prefill({ row: 2, ...rest }))).toEqual(whole);
    engine.releaseBlocks([3, 9]);
  });

  it('keeps what lies before the point of release', async () => {
    const whole = await prompt(0);
    engine.releaseRow(0, 32);
    expect(copyOf(await engine.prefill({ row: 0, start: 32, tokenIds: TOKENS.slice(32), logitCount: 1 }))).toEqual(whole);
  });

  it('refuses what would read or write beyond its memory', async () => {
    await expect(engine.prefill({ row: 6, start: 0, tokenIds: [1, 2], logitCount: 1 })).rejects.toThrow('row 6');
    await expect(engine.prefill({ row: 0, start: 60, tokenIds: [1, 2, 3, 4, 5], logitCount: 1 })).rejects.toThrow('the context has 64');
    await expect(engine.prefill({ row: 0, start: 0, tokenIds: [1, 288], logitCount: 1 })).rejects.toThrow('token id 288');
    await expect(engine.decode({ tokenIds: [-1], positions: [0] })).rejects.toThrow('token id -1');
    await expect(engine.decode({ tokenIds: [1], positions: [64] })).rejects.toThrow('position 64');
    await expect(engine.decode({ tokenIds: Array(7).fill(1), positions: Array(7).fill(0) })).rejects.toThrow('7 rows');
  });

  it('names the operation when onnxruntime refuses', () => {
    expect(() => open(model, `${model.directory}/none.onnx`)).toThrow(/^onnxruntime CreateSession: /);
  });

  it('leaves the event loop free while it runs, and runs one thing at a time', async () => {
    const running = engine.prefill({ row: 0, start: 0, tokenIds: TOKENS, logitCount: 1 });
    await expect(engine.decode({ tokenIds: [1], positions: [0] })).rejects.toThrow('one run at a time');
    expect(() => engine.close()).toThrow('in flight');
    await running;
  });

  it('gives all memory back on close: 20 times open and close leave the resident size flat', async () => {
    const cycle = async () => {
      const other = open();
      for (let row = 0; row < 6; row++) await other.prefill({ row, start: 0, tokenIds: TOKENS, logitCount: 1 });
      await other.decode({ tokenIds: Array(6).fill(1), positions: Array(6).fill(40) });
      other.close();
    };
    for (let i = 0; i < 5; i++) await cycle();
    const before = await residentBytes();
    for (let i = 0; i < 20; i++) await cycle();
    const grown = (await residentBytes()) - before;
    // One engine of this model takes about 8 MB: a leak of it would show as 160 MB.
    expect(grown).toBeLessThan(32 * 2 ** 20);
  });
});

async function residentBytes(): Promise<number> {
  const match = /VmRSS:\s+(\d+) kB/.exec(await readFile('/proc/self/status', 'utf8'));
  return Number(match![1]) * 1024;
}
