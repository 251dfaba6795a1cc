/** SymmetricBlocks: floats in 4 bits as onnxruntime's quantizer has them by default: a scale a block of 32, levels around 8. */

export const BLOCK = 32;

export interface SymmetricBlocks {
  /** Two levels a byte, the earlier one in the low half. */
  quants: Uint8Array;
  scales: Float32Array;
}

/** The number of floats is a multiple of 32. The value that lies farthest from zero is kept exactly, as level 0. */
export function symmetricBlocks(floats: Float32Array): SymmetricBlocks {
  const quants = new Uint8Array(floats.length / 2);
  const scales = new Float32Array(floats.length / BLOCK);
  for (let block = 0, start = 0; block < scales.length; block++, start += BLOCK) {
    let farthest = 0;
    for (let i = start; i < start + BLOCK; i++) if (Math.abs(floats[i]!) > Math.abs(farthest)) farthest = floats[i]!;
    const scale = farthest / -8;
    scales[block] = scale;
    const inverse = scale === 0 ? 0 : 1 / scale;
    for (let i = start; i < start + BLOCK; i += 2) {
      quants[i / 2] = level(floats[i]! * inverse) | (level(floats[i + 1]! * inverse) << 4);
    }
  }
  return { quants, scales };
}

function level(scaled: number): number {
  return Math.max(0, Math.min(15, Math.round(scaled) + 8));
}
