import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { whyNoKernels } from '../../../batcher/engine/kernels/kernel-library.ts';
import { OrtEngine } from '../../../batcher/engine/ort-engine.ts';
import { openGguf } from '../../../batcher/model/gguf-file.ts';
import type { Kernels, Quality, WeightsChoice } from '../../../batcher/model/matrix-form.ts';
import { graphPathOf, type PreparedModel, prepareModel } from '../../../batcher/model/prepare.ts';
import type { TensorTypeName } from '../../../batcher/model/tensor-type.ts';
import { writeGguf } from './gguf-writer.ts';
import { referenceLogits } from './llama-reference.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { TINY, type TinyOptions, tinyLlama } from './tiny-llama.ts';

const IDS = [3, 250, 17, 17, 99, 0, 255, 101, 64];
/** Of logits after two layers of random weights: float32 arithmetic; activations in 8 bits; weights in 4 bits. */
const FLOAT_TOLERANCE = 1e-5;
const QUANTIZED_TOLERANCE = 0.05;
const FOUR_BIT_TOLERANCE = 0.3;

async function prepareTiny(
  options: TinyOptions,
  { weights, quality, kernels = 'stock' }: { weights?: WeightsChoice; quality?: Quality; kernels?: Kernels } = {},
): Promise<{ path: string; prepared: PreparedModel }> {
  const folder = await temporaryFolder();
  const path = await writeGguf(join(folder, 'tiny.gguf'), tinyLlama(options));
  return { path, prepared: await prepareModel(path, { weights, quality, kernels, cacheRoot: join(folder, 'cache') }) };
}

/** Feeds the ids onto an empty cache, in the given chunks; logits of every position. */
async function graphLogits(prepared: PreparedModel, chunks: readonly (readonly number[])[]): Promise<Float32Array[]> {
  const engine = new OrtEngine({
    graphPath: graphPathOf(prepared, 'f32'),
    kernelPath: prepared.kernelPath,
    kvType: 'f32',
    model: prepared.manifest.shape,
    threads: 1,
    spinning: false,
    rowCount: 1,
    contextTokens: TINY.context,
    blockTokens: 16,
    storeBlocks: 1,
  });
  const rows: Float32Array[] = [];
  for (const tokenIds of chunks) {
    const logits = await engine.prefill({ row: 0, start: rows.length, tokenIds, logitCount: tokenIds.length });
    for (let i = 0; i < tokenIds.length; i++) rows.push(logits.slice(i * TINY.vocab, (i + 1) * TINY.vocab));
  }
  engine.close();
  return rows;
}

/** Root of the mean squared difference, as a share of the same of what is expected. */
function difference(actual: readonly ArrayLike<number>[], expected: readonly ArrayLike<number>[]): number {
  let size = 0;
  let error = 0;
  for (const [i, row] of expected.entries()) {
    for (let j = 0; j < row.length; j++) {
      size += row[j]! ** 2;
      error += (row[j]! - actual[i]![j]!) ** 2;
    }
  }
  expect(actual).toHaveLength(expected.length);
  return Math.sqrt(error / size);
}

async function reference(path: string, rope: Parameters<typeof referenceLogits>[2] = {}): Promise<Float64Array[]> {
  await using file = await openGguf(path);
  return await referenceLogits(file, IDS, rope);
}

const TYPES: readonly TensorTypeName[] = ['F32', 'F16', 'BF16', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q4_K', 'Q5_K', 'Q6_K'];

/** What the host can run. */
const KERNELS: readonly Kernels[] = whyNoKernels() === undefined ? ['stock', 'tiled'] : ['stock'];

describe.each(KERNELS.flatMap(kernels => TYPES.map(type => [type, kernels] as const)))('a model in %s with %s kernels', (type, kernels) => {
  test('as float32 computes what plain loops compute', async () => {
    const { path, prepared } = await prepareTiny({ other: type, embedding: type }, { weights: 'f32', kernels });
    expect(prepared.manifest.forms).toEqual({ float32: 15 });
    expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(FLOAT_TOLERANCE);
  });

  test('imported, with a tied head, differs by the rounding of activations only', async () => {
    const { path, prepared } = await prepareTiny({ other: type, embedding: type }, { kernels });
    expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(QUANTIZED_TOLERANCE);
  });

  test('imported, with a head of its own, in chunks', async () => {
    const { path, prepared } = await prepareTiny({ other: type, embedding: 'Q8_0', head: type, seed: 5 }, { kernels });
    const logits = await graphLogits(prepared, [IDS.slice(0, 4), IDS.slice(4, 8), IDS.slice(8)]);
    expect(difference(logits, await reference(path))).toBeLessThan(QUANTIZED_TOLERANCE);
  });
});

describe.each(KERNELS.flatMap(kernels => (['qwen2', 'qwen3'] as const).map(name => [name, kernels] as const)))(
  '%s with %s kernels',
  (architecture, kernels) => {
    test('as float32 computes what plain loops compute', async () => {
      const { path, prepared } = await prepareTiny({ architecture, seed: 3 }, { weights: 'f32', kernels });
      expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(FLOAT_TOLERANCE);
    });

    test('imported, in chunks', async () => {
      const { path, prepared } = await prepareTiny({ architecture, other: 'Q4_K', embedding: 'Q6_K', seed: 4 }, { kernels });
      const logits = await graphLogits(prepared, [IDS.slice(0, 4), IDS.slice(4, 8), IDS.slice(8)]);
      expect(difference(logits, await reference(path))).toBeLessThan(QUANTIZED_TOLERANCE);
    });
  },
);

test('biases of a llama lie as its rows do', async () => {
  const { path, prepared } = await prepareTiny({ hasBiases: true, seed: 6 }, { weights: 'f32' });
  expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(FLOAT_TOLERANCE);
});

describe('the form of the weights', () => {
  test('mixed types each keep their own', async () => {
    const types = { attn_v: 'Q6_K', ffn_down: 'Q6_K', ffn_up: 'Q5_K', attn_output: 'F16' } as const;
    const { path, prepared } = await prepareTiny({ other: 'Q4_K', types, embedding: 'Q6_K', seed: 8 });
    expect(prepared.manifest.forms).toEqual({
      '4-bit blocks of 32 with offsets': 6,
      '8-bit blocks of 16': 5,
      '8-bit blocks of 32 with offsets': 2,
      '8-bit blocks of 32': 2,
    });
    expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(QUANTIZED_TOLERANCE);
  });

  test.runIf(KERNELS.includes('tiled'))('tiles are used for all that they can hold, and mixed with the rest', async () => {
    const types = { attn_v: 'Q6_K', ffn_down: 'Q6_K', ffn_up: 'Q5_K', attn_output: 'Q4_0' } as const;
    const { path, prepared } = await prepareTiny({ other: 'Q4_K', types, embedding: 'Q6_K', seed: 8 }, { kernels: 'tiled' });
    expect(prepared.manifest.forms).toEqual({
      '4-bit tiles in blocks of 32': 8,
      '8-bit tiles in blocks of 16': 5,
      '8-bit blocks of 32 with offsets': 2,
    });
    expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(QUANTIZED_TOLERANCE);
  });

  test.each<[WeightsChoice, TensorTypeName, Record<string, number>]>([
    ['q8', 'F16', { '8-bit blocks of 32': 15 }],
    ['q4', 'F32', { '8-bit blocks of 32': 1, '4-bit blocks of 32 with offsets': 14 }],
    ['q8', 'Q4_1', { '8-bit blocks of 32': 15 }],
    ['q4', 'Q6_K', { '8-bit blocks of 16': 1, '4-bit blocks of 32 with offsets': 14 }],
    ['q4', 'Q4_0', { '8-bit blocks of 32': 1, '4-bit blocks of 32': 14 }],
  ])('%s of %s', async (weights, type, forms) => {
    const { path, prepared } = await prepareTiny({ other: type, embedding: type, seed: 11 }, { weights });
    expect(prepared.manifest.forms).toEqual(forms);
    const tolerance = weights === 'q4' ? FOUR_BIT_TOLERANCE : QUANTIZED_TOLERANCE;
    expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(tolerance);
  });

  test.each<[TensorTypeName, Kernels, Record<string, number>]>([
    ['Q4_1', 'stock', { '8-bit blocks of 32': 1, '4-bit blocks of 32 with offsets': 15 }],
    ['Q6_K', 'stock', { '8-bit blocks of 32': 1, '4-bit blocks of 32 with offsets': 15 }],
    ['Q4_1', 'tiled', { '8-bit tiles in blocks of 32': 1, '4-bit tiles in blocks of 32': 15 }],
  ])('fast, of %s with %s kernels: all products in 4 bits, a tied head too; the embedding stays', async (type, kernels, forms) => {
    if (!KERNELS.includes(kernels)) return;
    const { path, prepared } = await prepareTiny({ other: type, embedding: 'Q8_0', seed: 12 }, { quality: 'fast', kernels });
    expect(prepared.manifest).toMatchObject({ quality: 'fast', forms });
    const loss = difference(await graphLogits(prepared, [IDS]), await reference(path));
    expect(loss).toBeLessThan(FOUR_BIT_TOLERANCE);
    const { prepared: exact } = await prepareTiny({ other: type, embedding: 'Q8_0', seed: 12 }, { kernels });
    expect(loss).toBeGreaterThan(difference(await graphLogits(exact, [IDS]), await reference(path)));
  });

  test('fast, of a file whose embedding is in 4 bits as well, needs no second copy of it', async () => {
    const { prepared } = await prepareTiny({ other: 'Q4_1', embedding: 'Q4_1', seed: 12 }, { quality: 'fast' });
    expect(prepared.manifest.forms).toEqual({ '4-bit blocks of 32 with offsets': 15 });
  });
});

describe('rotary positions', () => {
  test('scaled linearly', async () => {
    const metadata = { 'llama.rope.scaling.type': { text: 'linear' }, 'llama.rope.scaling.factor': { f32: 4 } };
    const { path, prepared } = await prepareTiny({ metadata }, { weights: 'f32' });
    const logits = await graphLogits(prepared, [IDS]);
    expect(difference(logits, await reference(path, { divisor: 4 }))).toBeLessThan(FLOAT_TOLERANCE);
    expect(difference(logits, await reference(path))).toBeGreaterThan(1e-3);
  });

  test('with a factor for each frequency', async () => {
    const factors = Array.from({ length: TINY.headDim / 2 }, (_, i) => 1 + i / 4);
    const { path, prepared } = await prepareTiny({ ropeFactors: factors }, { weights: 'f32' });
    const logits = await graphLogits(prepared, [IDS]);
    expect(difference(logits, await reference(path, { factors }))).toBeLessThan(FLOAT_TOLERANCE);
    expect(difference(logits, await reference(path))).toBeGreaterThan(1e-3);
  });
});
