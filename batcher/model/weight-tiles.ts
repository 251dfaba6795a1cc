/**
 * WeightTiles: rows of quantized weights in the order in which the tiled kernels read them (engine/kernels/tiled.h says byte by byte
 * what a tile is): 16 rows together, block by block along the columns.
 */
import type { QuantBlocks } from './quant-blocks.ts';
import type { Scratch } from './scratch.ts';

export const TILE_ROWS = 16;

export interface TileForm {
  bits: 4 | 8;
  blockElements: 16 | 32;
  /** Scales and offsets are float16, where that loses nothing; else float32. */
  isHalf: boolean;
}

/** Bytes of one tile of the form, with so many columns. */
export function tileBytes({ bits, blockElements, isHalf }: TileForm, columns: number): number {
  const scaleBytes = TILE_ROWS * (isHalf ? 2 : 4);
  const blockBytes = bits === 4 ? 2 * scaleBytes + TILE_ROWS * 16 : scaleBytes + TILE_ROWS * blockElements;
  return (columns / blockElements) * blockBytes;
}

/** The blocks hold whole tiles, row by row; 8-bit ones have no minima. The result lies in the scratch. */
export function packTiles(blocks: QuantBlocks, form: TileForm, columns: number, scratch: Scratch): Uint8Array {
  const { levels, scales, minima, zero } = blocks;
  const { bits, blockElements, isHalf } = form;
  const blocksPerRow = columns / blockElements;
  const tileCount = levels.length / columns / TILE_ROWS;
  const tiles = scratch.bytes('tiles', tileCount * tileBytes(form, columns));
  const numbers = new DataView(tiles.buffer, tiles.byteOffset, tiles.byteLength);
  const numberBytes = isHalf ? 2 : 4;
  let at = 0;
  const putNumber = (value: number) => {
    if (isHalf) numbers.setFloat16(at, value, true);
    else numbers.setFloat32(at, value, true);
    at += numberBytes;
  };
  for (let firstRow = 0; firstRow < tileCount * TILE_ROWS; firstRow += TILE_ROWS) {
    for (let block = 0; block < blocksPerRow; block++) {
      for (let row = firstRow; row < firstRow + TILE_ROWS; row++) putNumber(scales[row * blocksPerRow + block]!);
      if (bits === 4) {
        for (let row = firstRow; row < firstRow + TILE_ROWS; row++) {
          const i = row * blocksPerRow + block;
          putNumber((minima?.[i] ?? 0) - zero * scales[i]!);
        }
      }
      for (let row = 0; row < TILE_ROWS; row++) {
        const from = (firstRow + row) * columns + block * blockElements;
        const to = at + 4 * row;
        for (let column = 0; column < (bits === 4 ? 16 : blockElements); column++) {
          const target = to + TILE_ROWS * (column & ~3) + (column & 3);
          tiles[target] = bits === 4 ? levels[from + column]! | (levels[from + 16 + column]! << 4) : levels[from + column]! - zero;
        }
      }
      at += TILE_ROWS * (bits === 4 ? 16 : blockElements);
    }
  }
  return tiles;
}
