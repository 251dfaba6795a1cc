/**
 * MatrixForm: how a weight matrix is stored in the prepared graph, and the one place that turns a GGUF tensor's rows into it.
 *
 * `blocks` is what MatMulNBits reads: levels with an implicit zero of 8 (4 bits) or 128 (8 bits) and a scale a block. A type with a
 * minimum has, besides, an offset a block: scale * (level - zero) + minimum = scale * (stored - implicit zero) + offset, which the
 * graph adds through the sums of the activations of each block. So every supported block type is imported without loss.
 *
 * `tiles` is the same in the order of our own kernels, where the host has them; offsets are part of a 4-bit tile.
 */
import { bfloatsToFloats, bytesToFloats, halvesToFloats } from './float-format.ts';
import type { GgufTensor } from './gguf-file.ts';
import { dequantize, type QuantBlocks, type QuantTypeName, quantLayoutOf, unpackBlocks } from './quant-blocks.ts';
import { quantizeTo4Bits, quantizeTo8Bits } from './quantize.ts';
import type { Scratch } from './scratch.ts';
import { packTiles, TILE_ROWS, type TileForm } from './weight-tiles.ts';

export type MatrixForm =
  | { kind: 'dense' }
  | { kind: 'blocks'; bits: 4 | 8; blockElements: 16 | 32; hasOffsets: boolean }
  | ({ kind: 'tiles' } & TileForm);

/** What `--weights` asks for; absent: quantized tensors as they are, float tensors in 8 bits. */
export type WeightsChoice = 'q4' | 'q8' | 'f32';
export const WEIGHTS_CHOICES: readonly WeightsChoice[] = ['q4', 'q8', 'f32'];

/** Rows in their stored form; all arrays are row-major, so that a run of rows is a run of bytes in each. */
export type StoredRows =
  | { kind: 'dense'; floats: Float32Array }
  | { kind: 'blocks'; quants: Uint8Array; scales: Float32Array; offsets: Float32Array | undefined }
  | { kind: 'tiles'; tiles: Uint8Array };

/**
 * `exact` keeps what the file has, as far as no choice of weights says otherwise; `fast` stores in 4 bits every matrix that a step multiplies by, the head
 * of the vocabulary too. The embedding, of which a step reads a row a token, stays as it is.
 */
export const QUALITIES = ['exact', 'fast'] as const;
export type Quality = (typeof QUALITIES)[number];

/** What a matrix is for: layers and head are multiplied by, rows of the embedding looked up. */
export type MatrixUse = 'layer' | 'embedding' | 'head';

export interface FormChoice {
  weights: WeightsChoice | undefined;
  quality: Quality;
  kernels: Kernels;
}

/** Which operators the graph may use: our own kernels too, or those that onnxruntime has. */
export const KERNELS = ['tiled', 'stock'] as const;
export type Kernels = (typeof KERNELS)[number];

type BlockForm = MatrixForm & { kind: 'blocks' };
const Q8: BlockForm = { kind: 'blocks', bits: 8, blockElements: 32, hasOffsets: false };
const Q4: BlockForm = { kind: 'blocks', bits: 4, blockElements: 32, hasOffsets: true };

export function matrixFormOf(tensor: GgufTensor, choice: FormChoice, use: MatrixUse): MatrixForm {
  if (choice.weights === 'f32' || tensor.columns % 32 !== 0) return { kind: 'dense' };
  const wanted = wantedForm(choice, use);
  const imported = tensor.type.isFloat ? undefined : importedForm(tensor.type.name as QuantTypeName);
  const isAsIs = imported !== undefined && (wanted === undefined || wanted.bits === imported.bits);
  const form = isAsIs ? imported : (wanted ?? Q8);
  const { kernels } = choice;
  if (kernels === 'stock' || tensor.rows % TILE_ROWS !== 0 || (form.bits === 8 && form.hasOffsets)) return form;
  const isHalf = isAsIs && quantLayoutOf(tensor.type.name as QuantTypeName).hasHalfScales;
  return { kind: 'tiles', bits: form.bits, blockElements: form.blockElements, isHalf };
}

/** Undefined: as it is. Embedding and head stay at 8 bits where only q4 is asked: the quality of a model hangs on them. */
function wantedForm({ weights, quality }: FormChoice, use: MatrixUse): BlockForm | undefined {
  if (quality === 'fast') return use === 'embedding' ? undefined : Q4;
  if (weights === undefined) return undefined;
  return weights === 'q4' && use === 'layer' ? Q4 : Q8;
}

function importedForm(type: QuantTypeName): BlockForm {
  const { levelBits, blockElements, hasMinima } = quantLayoutOf(type);
  return { kind: 'blocks', bits: levelBits === 4 ? 4 : 8, blockElements: blockElements === 16 ? 16 : 32, hasOffsets: hasMinima };
}

export function isSameForm(a: MatrixForm, b: MatrixForm): boolean {
  if (a.kind === 'dense' || b.kind === 'dense') return a.kind === b.kind;
  if (a.bits !== b.bits || a.blockElements !== b.blockElements) return false;
  if (a.kind === 'blocks') return b.kind === 'blocks' && a.hasOffsets === b.hasOffsets;
  return b.kind === 'tiles' && a.isHalf === b.isHalf;
}

export function tensorFloats(tensor: GgufTensor, bytes: Uint8Array, scratch: Scratch): Float32Array {
  const elementCount = elementCountOf(tensor, bytes);
  switch (tensor.type.name) {
    case 'F32':
      return bytesToFloats(bytes, elementCount, scratch);
    case 'F16':
      return halvesToFloats(bytes, elementCount, scratch);
    case 'BF16':
      return bfloatsToFloats(bytes, elementCount, scratch);
    default:
      return dequantize(unpackBlocks(tensor.type.name, bytes, elementCount, scratch), scratch);
  }
}

/** The bytes are whole rows of the tensor; the result lies in the scratch. */
export function storeRows(tensor: GgufTensor, form: MatrixForm, bytes: Uint8Array, scratch: Scratch): StoredRows {
  if (form.kind === 'dense') return { kind: 'dense', floats: tensorFloats(tensor, bytes, scratch) };
  if (form.kind === 'tiles') {
    return { kind: 'tiles', tiles: packTiles(blocksOf(tensor, form.bits, bytes, scratch), form, tensor.columns, scratch) };
  }
  return packBlocks(blocksOf(tensor, form.bits, bytes, scratch), form.bits, scratch);
}

function blocksOf(tensor: GgufTensor, bits: 4 | 8, bytes: Uint8Array, scratch: Scratch): QuantBlocks {
  if (!tensor.type.isFloat) {
    const name = tensor.type.name as QuantTypeName;
    const isStoredAsIs = (quantLayoutOf(name).levelBits === 4) === (bits === 4);
    if (isStoredAsIs) return unpackBlocks(name, bytes, elementCountOf(tensor, bytes), scratch);
  }
  const floats = tensorFloats(tensor, bytes, scratch);
  return bits === 4 ? quantizeTo4Bits(floats, scratch) : quantizeTo8Bits(floats, scratch);
}

function packBlocks(blocks: QuantBlocks, bits: 4 | 8, scratch: Scratch): StoredRows {
  const { levels, scales, minima, levelBits, zero } = blocks;
  // The level that lands on the implicit zero: the middle, where there is a minimum, so that stored numbers are small.
  const center = minima === undefined ? zero : 1 << (levelBits - 1);
  const quants = bits === 4 ? packNibbles(levels, 8 - center, scratch) : shiftLevels(levels, 128 - center);
  if (minima === undefined) return { kind: 'blocks', quants, scales, offsets: undefined };
  const offsets = scratch.floats('offsets', minima.length);
  for (let i = 0; i < offsets.length; i++) offsets[i] = minima[i]! + center * scales[i]!;
  return { kind: 'blocks', quants, scales, offsets };
}

/** Two levels a byte, the earlier one in the low half. */
function packNibbles(levels: Uint8Array, shift: number, scratch: Scratch): Uint8Array {
  const packed = scratch.bytes('packed', levels.length / 2);
  for (let i = 0, at = 0; i < packed.length; i++, at += 2) packed[i] = (levels[at]! + shift) | ((levels[at + 1]! + shift) << 4);
  return packed;
}

function shiftLevels(levels: Uint8Array, shift: number): Uint8Array {
  if (shift === 0) return levels;
  for (let i = 0; i < levels.length; i++) levels[i]! += shift;
  return levels;
}

function elementCountOf(tensor: GgufTensor, bytes: Uint8Array): number {
  return (bytes.length / tensor.type.blockBytes) * tensor.type.blockElements;
}
