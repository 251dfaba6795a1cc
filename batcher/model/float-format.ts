/** FloatFormat: half precision and bfloat16 numbers as float32, exactly (both are subsets of it). */
import type { Scratch } from './scratch.ts';

/** Value of each of the 65,536 half-precision bit patterns: IEEE 754 binary16. */
const HALF_VALUES: Float32Array = (() => {
  const values = new Float32Array(0x10000);
  for (let bits = 0; bits < 0x10000; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 0x1f;
    const fraction = bits & 0x3ff;
    if (exponent === 0) values[bits] = sign * fraction * 2 ** -24;
    else if (exponent === 31) values[bits] = fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
    else values[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return values;
})();

/** The half-precision number at a byte offset. */
export function halfAt(bytes: Uint8Array, offset: number): number {
  return HALF_VALUES[bytes[offset]! | (bytes[offset + 1]! << 8)]!;
}

export function halvesToFloats(bytes: Uint8Array, count: number, scratch: Scratch): Float32Array {
  const floats = scratch.floats('weights', count);
  for (let i = 0; i < count; i++) floats[i] = halfAt(bytes, 2 * i);
  return floats;
}

export function bfloatsToFloats(bytes: Uint8Array, count: number, scratch: Scratch): Float32Array {
  const floats = scratch.floats('weights', count);
  const bits = new Uint32Array(floats.buffer, floats.byteOffset, count);
  for (let i = 0; i < count; i++) bits[i] = (bytes[2 * i]! << 16) | (bytes[2 * i + 1]! << 24);
  return floats;
}

/** A copy, since the bytes of a file need not lie where a Float32Array may start. */
export function bytesToFloats(bytes: Uint8Array, count: number, scratch: Scratch): Float32Array {
  const floats = scratch.floats('weights', count);
  new Uint8Array(floats.buffer, floats.byteOffset, 4 * count).set(bytes.subarray(0, 4 * count));
  return floats;
}
