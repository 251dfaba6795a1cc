/**
 * SamplingScratch: the memory that all samplers of one engine share; nothing in it outlives a call of sample().
 * About 52 bytes a token of vocabulary: 2.6 MB at 49,152.
 *
 * The kernels' own memory, by address:
 *   constants | model row | edited row | weights (float32, a token) | ids (int32, a token) | block maxima (float32) | block sums | masses by distance (float64)
 */
import { LogitRow } from './logit-row.ts';
import { CONSTANT_BYTES, MASS_BINS, MAX_BLOCK, openKernels, type RowKernels, SUM_BLOCK } from './row-kernels.ts';

const VECTOR_BYTES = 16;

/** Gives kernels and the memory of at least so many bytes that they work on. */
export type KernelSource = (bytes: number) => { kernels: RowKernels; buffer: ArrayBufferLike };

export class SamplingScratch {
  readonly vocabSize: number;
  /** The model's logits as they came. */
  readonly model: LogitRow;
  /** The same after bias, penalties and masks. Both rows write their weights, ids, maxima and sums to the same place: the last writer's count. */
  readonly edited: LogitRow;

  /** Candidates: distance of each one's logit from the largest, its weight, and a sort key where that is not the distance. */
  readonly ids: Int32Array;
  readonly distances: Float64Array;
  readonly weights: Float64Array;
  readonly keys: Float64Array;
  readonly ones: Float64Array;
  /** Indices of candidates that a selection still looks at. */
  readonly members: Int32Array;

  /** `open`: the kernels; in WebAssembly where the host has no others. */
  constructor(vocabSize: number, open: KernelSource = openKernels) {
    this.vocabSize = vocabSize;
    const padded = Math.ceil(vocabSize / SUM_BLOCK) * SUM_BLOCK;
    let end = CONSTANT_BYTES;
    const place = (bytes: number): number => {
      const address = end;
      end += Math.ceil(bytes / VECTOR_BYTES) * VECTOR_BYTES;
      return address;
    };
    const modelAddress = place(padded * 4);
    const editedAddress = place(padded * 4);
    const shared = {
      weights: place(padded * 4),
      // The collecting kernel writes whole vectors.
      ids: place(padded * 4 + VECTOR_BYTES),
      maxima: place((padded / MAX_BLOCK) * 4),
      sums: place((padded / SUM_BLOCK) * 8),
      masses: place(MASS_BINS * 8),
    };
    const { kernels, buffer } = open(end);
    this.model = new LogitRow(kernels, buffer, { row: modelAddress, ...shared, vocabSize, padded });
    this.edited = new LogitRow(kernels, buffer, { row: editedAddress, ...shared, vocabSize, padded });
    this.ids = this.model.ids;
    this.distances = new Float64Array(vocabSize);
    this.weights = new Float64Array(vocabSize);
    this.keys = new Float64Array(vocabSize);
    this.ones = new Float64Array(vocabSize).fill(1);
    this.members = new Int32Array(vocabSize);
  }
}
