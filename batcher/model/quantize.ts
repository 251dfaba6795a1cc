/**
 * Quantize: float32 weights as blocks of 32, for sources that come in floats and for re-quantization that was asked for.
 * 8 bits: symmetric, error under 0.4 % of a block's largest weight. 4 bits: scale and minimum fitted by least squares.
 */
import type { QuantBlocks } from './quant-blocks.ts';
import type { Scratch } from './scratch.ts';

const BLOCK = 32;
/** Rounds of fitting; a third one changes the squared error by less than 1 %. */
const FIT_ROUNDS = 2;

/** The number of floats is a multiple of 32. */
export function quantizeTo8Bits(floats: Float32Array, scratch: Scratch): QuantBlocks {
  const scales = scratch.floats('scales', floats.length / BLOCK);
  const levels = scratch.bytes('levels', floats.length);
  for (let block = 0, start = 0; block < scales.length; block++, start += BLOCK) {
    let largest = 0;
    for (let i = start; i < start + BLOCK; i++) largest = Math.max(largest, Math.abs(floats[i]!));
    scales[block] = largest / 127;
    const inverse = largest === 0 ? 0 : 127 / largest;
    for (let i = start; i < start + BLOCK; i++) levels[i] = Math.round(floats[i]! * inverse) + 128;
  }
  return { blockElements: BLOCK, levelBits: 8, zero: 128, levels, scales, minima: undefined };
}

/** The number of floats is a multiple of 32. */
export function quantizeTo4Bits(floats: Float32Array, scratch: Scratch): QuantBlocks {
  const scales = scratch.floats('scales', floats.length / BLOCK);
  const minima = scratch.floats('minima', scales.length);
  const levels = scratch.bytes('levels', floats.length);
  const trial = new Uint8Array(BLOCK);
  for (let block = 0, start = 0; block < scales.length; block++, start += BLOCK) {
    let minimum = floats[start]!;
    let maximum = minimum;
    for (let i = start + 1; i < start + BLOCK; i++) {
      minimum = Math.min(minimum, floats[i]!);
      maximum = Math.max(maximum, floats[i]!);
    }
    let scale = (maximum - minimum) / 15;
    let leastError = Number.POSITIVE_INFINITY;
    for (let round = 0; round <= FIT_ROUNDS; round++) {
      const fit = roundBlock(floats, start, { scale, minimum }, trial);
      if (!(fit.error < leastError)) break;
      leastError = fit.error;
      scales[block] = scale;
      minima[block] = minimum;
      levels.set(trial, start);
      if (fit.next === undefined) break;
      ({ scale, minimum } = fit.next);
    }
  }
  return { blockElements: BLOCK, levelBits: 4, zero: 0, levels, scales, minima };
}

interface Line {
  scale: number;
  minimum: number;
}

/** Rounds one block to levels 0 to 15; gives the squared error, and the line that fits these levels best. */
function roundBlock(
  floats: Float32Array,
  start: number,
  { scale, minimum }: Line,
  levels: Uint8Array,
): { error: number; next: Line | undefined } {
  const inverse = scale === 0 ? 0 : 1 / scale;
  let error = 0;
  let sumLevels = 0;
  let sumSquares = 0;
  let sumFloats = 0;
  let sumProducts = 0;
  for (let i = 0; i < BLOCK; i++) {
    const float = floats[start + i]!;
    const level = Math.max(0, Math.min(15, Math.round((float - minimum) * inverse)));
    levels[i] = level;
    error += (scale * level + minimum - float) ** 2;
    sumLevels += level;
    sumSquares += level * level;
    sumFloats += float;
    sumProducts += level * float;
  }
  const spread = BLOCK * sumSquares - sumLevels * sumLevels;
  if (spread === 0) return { error, next: undefined };
  const fitted = (BLOCK * sumProducts - sumLevels * sumFloats) / spread;
  return { error, next: { scale: fitted, minimum: (sumFloats - fitted * sumLevels) / BLOCK } };
}
