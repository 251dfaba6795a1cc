/** RandomTensor: the bytes of a tensor of any type, seeded: random levels under scales of a useful size. */
import type { TensorTypeName } from '../../../batcher/model/tensor-type.ts';

interface Layout {
  code: number;
  elements: number;
  bytes: number;
  /** Byte offsets of the half-precision numbers of a block. */
  halves: readonly number[];
  /** Size of a scale so that weights come to about 0.1. */
  scale: number;
}

export const LAYOUTS: Readonly<Record<TensorTypeName, Layout>> = {
  F32: { code: 0, elements: 1, bytes: 4, halves: [], scale: 0 },
  F16: { code: 1, elements: 1, bytes: 2, halves: [], scale: 0 },
  BF16: { code: 30, elements: 1, bytes: 2, halves: [], scale: 0 },
  Q4_0: { code: 2, elements: 32, bytes: 18, halves: [0], scale: 0.015 },
  Q4_1: { code: 3, elements: 32, bytes: 20, halves: [0, 2], scale: 0.015 },
  Q5_0: { code: 6, elements: 32, bytes: 22, halves: [0], scale: 0.008 },
  Q5_1: { code: 7, elements: 32, bytes: 24, halves: [0, 2], scale: 0.008 },
  Q8_0: { code: 8, elements: 32, bytes: 34, halves: [0], scale: 0.001 },
  Q4_K: { code: 12, elements: 256, bytes: 144, halves: [0, 2], scale: 0.0004 },
  Q5_K: { code: 13, elements: 256, bytes: 176, halves: [0, 2], scale: 0.0002 },
  Q6_K: { code: 14, elements: 256, bytes: 210, halves: [208], scale: 0.00005 },
};

export type Random = () => number;

/** Mulberry32: uniform in [0, 1). */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function randomTensorBytes(type: TensorTypeName, elementCount: number, random: Random): Uint8Array {
  const { elements, bytes, halves, scale } = LAYOUTS[type];
  const data = Buffer.alloc((elementCount / elements) * bytes);
  if (type === 'F32') for (let i = 0; i < elementCount; i++) data.writeFloatLE((random() - 0.5) * 0.4, i * 4);
  else if (type === 'F16') for (let i = 0; i < elementCount; i++) data.writeUInt16LE(toHalf((random() - 0.5) * 0.4), i * 2);
  else if (type === 'BF16') for (let i = 0; i < elementCount; i++) data.writeUInt16LE(toBfloat((random() - 0.5) * 0.4), i * 2);
  else {
    for (let i = 0; i < data.length; i++) data[i] = Math.floor(random() * 256);
    for (let block = 0; block < data.length; block += bytes) {
      data.writeUInt16LE(toHalf(scale * (0.5 + random())), block + halves[0]!);
      // Weights around zero: minima of the plain types are negative; the K types subtract theirs.
      const middle = type.startsWith('Q5') ? 15.5 : 7.5;
      const minimum = (elements === 256 ? scale : -scale) * middle;
      if (halves[1] !== undefined) data.writeUInt16LE(toHalf(minimum * (0.5 + random())), block + halves[1]);
    }
  }
  return data;
}

export function floatBytes(values: readonly number[]): Uint8Array {
  return new Uint8Array(Float32Array.from(values).buffer);
}

/** Round toward zero; only the size matters here. */
function toHalf(value: number): number {
  const bits = bitsOf(value);
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 127 + 15;
  if (exponent <= 0) return sign | Math.floor(Math.abs(value) * 2 ** 24);
  return sign | (exponent << 10) | ((bits >>> 13) & 0x3ff);
}

function toBfloat(value: number): number {
  return bitsOf(value) >>> 16;
}

const FLOAT = new Float32Array(1);
const BITS = new Uint32Array(FLOAT.buffer);

function bitsOf(value: number): number {
  FLOAT[0] = value;
  return BITS[0]!;
}
