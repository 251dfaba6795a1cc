import { join } from 'node:path';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { describe, expect, test } from 'vitest';
import { openGguf } from '../../../batcher/model/gguf-file.ts';
import type { WeightsChoice } from '../../../batcher/model/matrix-form.ts';
import { type PreparedModel, prepareModel } from '../../../batcher/model/prepare.ts';
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

async function prepareTiny(options: TinyOptions, weights?: WeightsChoice): Promise<{ path: string; prepared: PreparedModel }> {
  const folder = await temporaryFolder();
  const path = await writeGguf(join(folder, 'tiny.gguf'), tinyLlama(options));
  return { path, prepared: await prepareModel(path, { weights, cacheRoot: join(folder, 'cache') }) };
}

/** Feeds the ids onto an empty cache, in the given chunks; logits of every position. */
async function graphLogits({ graphPath }: PreparedModel, chunks: readonly (readonly number[])[]): Promise<Float32Array[]> {
  const session = await InferenceSession.create(graphPath);
  const { layers, kvHeads, headDim, vocab, context } = TINY;
  const size = kvHeads * context * headDim;
  let cache: Record<string, Tensor> = {};
  for (let layer = 0; layer < layers; layer++) {
    for (const side of ['k', 'v'])
      cache[`past_${side}${layer}`] = new Tensor('float32', new Float32Array(size), [1, kvHeads, context, headDim]);
  }
  const rows: Float32Array[] = [];
  let total = 0;
  for (const ids of chunks) {
    total += ids.length;
    const result = await session.run({
      ...cache,
      input_ids: new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]),
      seqlens_k: new Tensor('int32', Int32Array.of(total - 1), [1]),
      total: new Tensor('int32', Int32Array.of(total), []),
      pick: new Tensor('int64', BigInt64Array.from(ids.keys(), BigInt), [ids.length]),
    });
    const logits = result.logits!.data as Float32Array;
    for (let i = 0; i < ids.length; i++) rows.push(logits.slice(i * vocab, (i + 1) * vocab));
    cache = Object.fromEntries(Object.keys(cache).map(name => [name, result[name.replace('past', 'present')] as Tensor]));
  }
  await session.release();
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

describe.each(TYPES)('a model in %s', type => {
  test('as float32 computes what plain loops compute', async () => {
    const { path, prepared } = await prepareTiny({ other: type, embedding: type }, 'f32');
    expect(prepared.manifest.forms).toEqual({ float32: 15 });
    expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(FLOAT_TOLERANCE);
  });

  test('imported, with a tied head, differs by the rounding of activations only', async () => {
    const { path, prepared } = await prepareTiny({ other: type, embedding: type });
    expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(QUANTIZED_TOLERANCE);
  });

  test('imported, with a head of its own, in chunks', async () => {
    const { path, prepared } = await prepareTiny({ other: type, embedding: 'Q8_0', head: type, seed: 5 });
    const logits = await graphLogits(prepared, [IDS.slice(0, 4), IDS.slice(4, 8), IDS.slice(8)]);
    expect(difference(logits, await reference(path))).toBeLessThan(QUANTIZED_TOLERANCE);
  });
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

  test.each<[WeightsChoice, TensorTypeName, Record<string, number>]>([
    ['q8', 'F16', { '8-bit blocks of 32': 15 }],
    ['q4', 'F32', { '8-bit blocks of 32': 1, '4-bit blocks of 32 with offsets': 14 }],
    ['q8', 'Q4_1', { '8-bit blocks of 32': 15 }],
    ['q4', 'Q6_K', { '8-bit blocks of 16': 1, '4-bit blocks of 32 with offsets': 14 }],
    ['q4', 'Q4_0', { '8-bit blocks of 32': 1, '4-bit blocks of 32': 14 }],
  ])('%s of %s', async (weights, type, forms) => {
    const { path, prepared } = await prepareTiny({ other: type, embedding: type, seed: 11 }, weights);
    expect(prepared.manifest.forms).toEqual(forms);
    const tolerance = weights === 'q4' ? FOUR_BIT_TOLERANCE : QUANTIZED_TOLERANCE;
    expect(difference(await graphLogits(prepared, [IDS]), await reference(path))).toBeLessThan(tolerance);
  });
});

describe('rotary positions', () => {
  test('scaled linearly', async () => {
    const metadata = { 'llama.rope.scaling.type': { text: 'linear' }, 'llama.rope.scaling.factor': { f32: 4 } };
    const { path, prepared } = await prepareTiny({ metadata }, 'f32');
    const logits = await graphLogits(prepared, [IDS]);
    expect(difference(logits, await reference(path, { divisor: 4 }))).toBeLessThan(FLOAT_TOLERANCE);
    expect(difference(logits, await reference(path))).toBeGreaterThan(1e-3);
  });

  test('with a factor for each frequency', async () => {
    const factors = Array.from({ length: TINY.headDim / 2 }, (_, i) => 1 + i / 4);
    const { path, prepared } = await prepareTiny({ ropeFactors: factors }, 'f32');
    const logits = await graphLogits(prepared, [IDS]);
    expect(difference(logits, await reference(path, { factors }))).toBeLessThan(FLOAT_TOLERANCE);
    expect(difference(logits, await reference(path))).toBeGreaterThan(1e-3);
  });
});
