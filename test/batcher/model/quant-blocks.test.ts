import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { bfloatsToFloats, halvesToFloats } from '../../../batcher/model/float-format.ts';
import { dequantize, type QuantTypeName, unpackBlocks } from '../../../batcher/model/quant-blocks.ts';
import { quantizeTo4Bits, quantizeTo8Bits } from '../../../batcher/model/quantize.ts';
import { Scratch } from '../../../batcher/model/scratch.ts';
import { seededRandom } from './random-tensor.ts';

interface Fixture {
  /** In hexadecimal. */
  bytes: string;
  weights: number[];
}

/** Random blocks, and their weights by the reference implementation (Python package gguf 0.19). */
const { F16, BF16, ...quantized } = JSON.parse(readFileSync(new URL('./dequantized.json', import.meta.url), 'utf8')) as Record<
  QuantTypeName | 'F16' | 'BF16',
  Fixture
>;

describe('quantized blocks', () => {
  test.each(Object.entries(quantized))('%s gives exactly the reference weights', (type, { bytes, weights }) => {
    const scratch = new Scratch();
    const blocks = unpackBlocks(type as QuantTypeName, Buffer.from(bytes, 'hex'), weights.length, scratch);
    expect([...dequantize(blocks, scratch)]).toEqual(weights);
  });

  test('half precision and bfloat16 are exact', () => {
    expect([...halvesToFloats(Buffer.from(F16.bytes, 'hex'), F16.weights.length, new Scratch())]).toEqual(F16.weights);
    expect([...bfloatsToFloats(Buffer.from(BF16.bytes, 'hex'), BF16.weights.length, new Scratch())]).toEqual(BF16.weights);
  });
});

describe('quantizing floats', () => {
  const random = seededRandom(3);
  const floats = Float32Array.from({ length: 32 * 64 }, () => (random() - 0.5) * (random() < 0.1 ? 4 : 1));

  test('8 bits: no weight is off by more than half a step', () => {
    const scratch = new Scratch();
    const blocks = quantizeTo8Bits(floats, scratch);
    const back = dequantize(blocks, scratch);
    for (const [i, value] of floats.entries()) expect(Math.abs(back[i]! - value)).toBeLessThanOrEqual(blocks.scales[i >> 5]! * 0.5001);
  });

  test('4 bits: fitting never does worse than the range of the block', () => {
    const scratch = new Scratch();
    const back = dequantize(quantizeTo4Bits(floats, scratch), scratch);
    for (let block = 0; block < floats.length; block += 32) {
      const part = floats.subarray(block, block + 32);
      const minimum = Math.min(...part);
      const step = (Math.max(...part) - minimum) / 15;
      const rangeError = part.reduce((sum, value) => sum + (Math.round((value - minimum) / step) * step + minimum - value) ** 2, 0);
      const error = part.reduce((sum, value, i) => sum + (back[block + i]! - value) ** 2, 0);
      expect(error).toBeLessThanOrEqual(rangeError * 1.0001);
    }
  });

  test.each([0, 0.25, -3])('a block of nothing but %d comes back', value => {
    const constant = new Float32Array(32).fill(value);
    for (const quantize of [quantizeTo4Bits, quantizeTo8Bits]) {
      const scratch = new Scratch();
      for (const back of dequantize(quantize(constant, scratch), scratch)) expect(back).toBeCloseTo(value, 5);
    }
  });
});
