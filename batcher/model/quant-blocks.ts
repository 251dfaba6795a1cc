/**
 * QuantBlocks: quantized weights in one common form, whatever type they had in the file: small blocks of unsigned levels with
 * a scale and, in some types, a minimum. weight = scale * (level - zero) + minimum, exactly as ggml computes it.
 * Unpacking loses nothing: `dequantize` gives the same float32 numbers as the reference implementation.
 */
import { halfAt } from './float-format.ts';
import type { Scratch } from './scratch.ts';
import type { TensorTypeName } from './tensor-type.ts';

export interface QuantBlocks {
  /** Elements that share a scale: 16 or 32. */
  blockElements: number;
  /** Levels are below 2 ** levelBits. */
  levelBits: 4 | 5 | 6 | 8;
  /** The level that stands for 0 when there is no minimum; 0 with a minimum. */
  zero: number;
  /** One an element, in the order of the columns. */
  levels: Uint8Array;
  /** One a block. */
  scales: Float32Array;
  /** One a block. */
  minima: Float32Array | undefined;
}

interface QuantLayout {
  blockElements: number;
  levelBits: QuantBlocks['levelBits'];
  zero: number;
  hasMinima: boolean;
  /** Scales and minima are half-precision numbers in the file, not products of several. */
  hasHalfScales: boolean;
  /** Fills the blocks from the bytes of a whole number of the type's own blocks. */
  unpack(bytes: Uint8Array, blocks: QuantBlocks): void;
}

export type QuantTypeName = Exclude<TensorTypeName, 'F32' | 'F16' | 'BF16'>;

const LAYOUTS: Readonly<Record<QuantTypeName, QuantLayout>> = {
  Q4_0: { blockElements: 32, levelBits: 4, zero: 8, hasMinima: false, hasHalfScales: true, unpack: unpackNibbles },
  Q4_1: { blockElements: 32, levelBits: 4, zero: 0, hasMinima: true, hasHalfScales: true, unpack: unpackNibbles },
  Q5_0: { blockElements: 32, levelBits: 5, zero: 16, hasMinima: false, hasHalfScales: true, unpack: unpackFives },
  Q5_1: { blockElements: 32, levelBits: 5, zero: 0, hasMinima: true, hasHalfScales: true, unpack: unpackFives },
  Q8_0: { blockElements: 32, levelBits: 8, zero: 128, hasMinima: false, hasHalfScales: true, unpack: unpackBytes },
  Q4_K: { blockElements: 32, levelBits: 4, zero: 0, hasMinima: true, hasHalfScales: false, unpack: unpackSuperNibbles },
  Q5_K: { blockElements: 32, levelBits: 5, zero: 0, hasMinima: true, hasHalfScales: false, unpack: unpackSuperFives },
  Q6_K: { blockElements: 16, levelBits: 6, zero: 32, hasMinima: false, hasHalfScales: false, unpack: unpackSuperSixes },
};

/** What unpacking a type gives, without unpacking anything. */
export function quantLayoutOf(type: QuantTypeName): Readonly<Omit<QuantLayout, 'unpack'>> {
  return LAYOUTS[type];
}

/** The bytes hold elementCount elements, a whole number of the type's blocks. */
export function unpackBlocks(type: QuantTypeName, bytes: Uint8Array, elementCount: number, scratch: Scratch): QuantBlocks {
  const { blockElements, levelBits, zero, hasMinima, unpack } = LAYOUTS[type];
  const blockCount = elementCount / blockElements;
  const blocks: QuantBlocks = {
    blockElements,
    levelBits,
    zero,
    levels: scratch.bytes('levels', elementCount),
    scales: scratch.floats('scales', blockCount),
    minima: hasMinima ? scratch.floats('minima', blockCount) : undefined,
  };
  unpack(bytes, blocks);
  return blocks;
}

export function dequantize(blocks: QuantBlocks, scratch: Scratch): Float32Array {
  const { blockElements, zero, levels, scales, minima } = blocks;
  const floats = scratch.floats('weights', levels.length);
  for (let block = 0, i = 0; block < scales.length; block++) {
    const scale = scales[block]!;
    const end = i + blockElements;
    if (minima === undefined) {
      for (; i < end; i++) floats[i] = scale * (levels[i]! - zero);
    } else {
      // Rounded after the product too, as float32 arithmetic does.
      for (const minimum = minima[block]!; i < end; i++) floats[i] = Math.fround(scale * levels[i]!) + minimum;
    }
  }
  return floats;
}

/** Q4_0 and Q4_1: scale, minimum if any, then 16 bytes whose low halves are the first 16 levels and high halves the last 16. */
function unpackNibbles(bytes: Uint8Array, { levels, scales, minima }: QuantBlocks): void {
  for (let block = 0, at = 0, i = 0; block < scales.length; block++, i += 32) {
    scales[block] = halfAt(bytes, at);
    at += 2;
    if (minima !== undefined) {
      minima[block] = halfAt(bytes, at);
      at += 2;
    }
    for (let j = 0; j < 16; j++) {
      const pair = bytes[at++]!;
      levels[i + j] = pair & 15;
      levels[i + 16 + j] = pair >> 4;
    }
  }
}

/** Q5_0 and Q5_1: as the 4-bit types, with the fifth bits of the 32 levels in four bytes before the halves. */
function unpackFives(bytes: Uint8Array, { levels, scales, minima }: QuantBlocks): void {
  for (let block = 0, at = 0, i = 0; block < scales.length; block++, i += 32) {
    scales[block] = halfAt(bytes, at);
    at += 2;
    if (minima !== undefined) {
      minima[block] = halfAt(bytes, at);
      at += 2;
    }
    const fifths = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
    at += 4;
    for (let j = 0; j < 16; j++) {
      const pair = bytes[at++]!;
      levels[i + j] = (pair & 15) | (((fifths >>> j) & 1) << 4);
      levels[i + 16 + j] = (pair >> 4) | (((fifths >>> (j + 16)) & 1) << 4);
    }
  }
}

/** Q8_0: scale, then 32 signed bytes. */
function unpackBytes(bytes: Uint8Array, { levels, scales }: QuantBlocks): void {
  for (let block = 0, at = 0, i = 0; block < scales.length; block++) {
    scales[block] = halfAt(bytes, at);
    at += 2;
    // Flipping the sign bit adds 128 to a two's complement byte.
    for (const end = i + 32; i < end; i++) levels[i] = bytes[at++]! ^ 0x80;
  }
}

/** Q4_K: a super-block's header, then four runs of 32 bytes; the low halves of a run are one block, the high halves the next. */
function unpackSuperNibbles(bytes: Uint8Array, blocks: QuantBlocks): void {
  const { levels, scales } = blocks;
  for (let block = 0, at = 0, i = 0; block < scales.length; block += 8, at += 144) {
    unpackSuperHeader(bytes, at, blocks, block);
    for (let run = 0, pairs = at + 16; run < 4; run++, pairs += 32, i += 64) {
      for (let j = 0; j < 32; j++) {
        const pair = bytes[pairs + j]!;
        levels[i + j] = pair & 15;
        levels[i + 32 + j] = pair >> 4;
      }
    }
  }
}

/** Q5_K: as Q4_K, with the fifth bits between header and runs: byte j holds those of element j of all eight blocks. */
function unpackSuperFives(bytes: Uint8Array, blocks: QuantBlocks): void {
  const { levels, scales } = blocks;
  for (let block = 0, at = 0, i = 0; block < scales.length; block += 8, at += 176) {
    unpackSuperHeader(bytes, at, blocks, block);
    const fifths = at + 16;
    for (let run = 0, pairs = at + 48; run < 4; run++, pairs += 32, i += 64) {
      for (let j = 0; j < 32; j++) {
        const pair = bytes[pairs + j]!;
        const bits = bytes[fifths + j]! >> (2 * run);
        levels[i + j] = (pair & 15) | ((bits & 1) << 4);
        levels[i + 32 + j] = (pair >> 4) | ((bits & 2) << 3);
      }
    }
  }
}

/**
 * The 16 bytes that open a Q4_K or Q5_K super-block: scale of the scales, scale of the minima, then eight 6-bit scales and
 * eight 6-bit minima: the first four of each in the low bits of bytes 0-3 and 4-7, the others split into the low (scale) or high
 * (minimum) half of bytes 8-11 and the two top bits of bytes 0-3 (scale) and 4-7 (minimum).
 */
function unpackSuperHeader(bytes: Uint8Array, at: number, { scales, minima }: QuantBlocks, block: number): void {
  const scale = halfAt(bytes, at);
  const minimumScale = halfAt(bytes, at + 2);
  const six = at + 4;
  for (let j = 0; j < 4; j++) {
    const first = bytes[six + j]!;
    const second = bytes[six + 4 + j]!;
    const third = bytes[six + 8 + j]!;
    scales[block + j] = scale * (first & 63);
    minima![block + j] = -minimumScale * (second & 63);
    scales[block + 4 + j] = scale * ((third & 15) | ((first >> 6) << 4));
    minima![block + 4 + j] = -minimumScale * ((third >> 4) | ((second >> 6) << 4));
  }
}

/**
 * Q6_K: low four bits of 256 levels (128 bytes), high two bits (64 bytes), sixteen signed 8-bit scales, scale of the scales.
 * Each half of the super-block interleaves four runs of 32 elements.
 */
function unpackSuperSixes(bytes: Uint8Array, { levels, scales }: QuantBlocks): void {
  for (let block = 0, at = 0, i = 0; block < scales.length; block += 16, at += 210) {
    const scale = halfAt(bytes, at + 208);
    for (let j = 0; j < 16; j++) scales[block + j] = scale * ((bytes[at + 192 + j]! << 24) >> 24);
    for (let half = 0, low = at, high = at + 128; half < 2; half++, low += 64, high += 32, i += 128) {
      for (let j = 0; j < 32; j++) {
        const first = bytes[low + j]!;
        const second = bytes[low + 32 + j]!;
        const top = bytes[high + j]!;
        levels[i + j] = (first & 15) | ((top & 3) << 4);
        levels[i + 32 + j] = (second & 15) | (((top >> 2) & 3) << 4);
        levels[i + 64 + j] = (first >> 4) | (((top >> 4) & 3) << 4);
        levels[i + 96 + j] = (second >> 4) | ((top >> 6) << 4);
      }
    }
  }
}
