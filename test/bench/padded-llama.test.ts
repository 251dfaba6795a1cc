/** The export for other libraries computes what plain loops compute, up to its 4 bits. */
import { join } from 'node:path';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { expect, test } from 'vitest';
import { openGguf } from '../../batcher/model/gguf-file.ts';
import { writePaddedLlama } from '../../bench/peers/padded-llama.ts';
import { symmetricBlocks } from '../../bench/peers/symmetric-blocks.ts';
import { writeGguf } from '../batcher/model/gguf-writer.ts';
import { referenceLogits } from '../batcher/model/llama-reference.ts';
import { temporaryFolder } from '../batcher/model/temporary-folder.ts';
import { TINY, tinyLlama } from '../batcher/model/tiny-llama.ts';

const IDS = [3, 250, 17, 17, 99, 0, 255, 101, 64];
/** Of logits after two layers of random weights in symmetric blocks of 4 bits; a wrong graph is off by 1 and more. */
const TOLERANCE = 0.4;

test('a padded batch, its cache fed back', async () => {
  const folder = await temporaryFolder();
  const path = await writeGguf(join(folder, 'tiny.gguf'), tinyLlama({ other: 'Q4_0', head: 'Q4_0' }));
  await writePaddedLlama(path, join(folder, 'export'));
  const session = await InferenceSession.create(join(folder, 'export', 'onnx', 'model.onnx'), { intraOpNumThreads: 1 });
  const int64s = (rows: readonly (readonly number[])[]) =>
    new Tensor('int64', BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0]!.length]);
  const empty = () => new Tensor('float32', new Float32Array(0), [2, TINY.kvHeads, 0, TINY.headDim]);
  const sides = Array.from({ length: TINY.layers }, (_, layer) => [`${layer}.key`, `${layer}.value`]).flat();

  const other = IDS.toReversed();
  const first = await session.run({
    input_ids: int64s([IDS.slice(0, -1), other.slice(0, -1)]),
    attention_mask: int64s([IDS.slice(0, -1), other.slice(0, -1)].map(row => row.map(() => 1))),
    ...Object.fromEntries(sides.map(side => [`past_key_values.${side}`, empty()])),
  });
  const second = await session.run({
    input_ids: int64s([IDS.slice(-1), other.slice(-1)]),
    attention_mask: int64s([IDS, other].map(row => row.map(() => 1))),
    ...Object.fromEntries(sides.map(side => [`past_key_values.${side}`, first[`present.${side}`]!])),
  });

  await using file = await openGguf(path);
  for (const [row, ids] of [IDS, other].entries()) {
    const expected = await referenceLogits(file, ids);
    for (const [step, position] of [first, second].map((out, step) => [out, ids.length - 2 + step] as const)) {
      const logits = (step.logits!.data as Float32Array).subarray(row * TINY.vocab, (row + 1) * TINY.vocab);
      expect(difference(logits, expected[position]!)).toBeLessThan(TOLERANCE);
    }
  }
});

test('a block keeps its farthest value exactly, and all others within half a step', () => {
  const floats = Float32Array.from({ length: 64 }, (_, i) => Math.sin(i * 7) * (i < 32 ? 1 : 0));
  const { quants, scales } = symmetricBlocks(floats);
  const back = Array.from(floats, (_, i) => (((quants[i >> 1]! >> (i % 2 === 0 ? 0 : 4)) & 15) - 8) * scales[i >> 5]!);
  const farthest = floats.reduce((most, value, i) => (Math.abs(value) > Math.abs(floats[most]!) ? i : most), 0);
  expect(back[farthest]).toBeCloseTo(floats[farthest]!, 6);
  // On the side without a level 8 the last half step is cut off.
  for (const [i, value] of floats.entries()) expect(Math.abs(back[i]! - value)).toBeLessThanOrEqual(Math.abs(scales[i >> 5]!) * 1.0001);
});

/** Root of the mean squared difference, as a share of the same of what is expected. */
function difference(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  let size = 0;
  let error = 0;
  for (let i = 0; i < expected.length; i++) {
    size += expected[i]! ** 2;
    error += (expected[i]! - actual[i]!) ** 2;
  }
  return Math.sqrt(error / size);
}
