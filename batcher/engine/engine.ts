/**
 * Engine: the seam between what decides (scheduler, sampler) and what computes. A real one holds a model and a KV cache of
 * `rowCount` rows; a fake one needs no weights. An engine never sees a priority, a string or a request.
 */

/** Type of the numbers in a KV cache. */
export const KV_TYPES = ['f32', 'f16'] as const;
export type KvType = (typeof KV_TYPES)[number];

export interface EngineShape {
  vocabSize: number;
  /** Tokens that one row of the KV cache can hold. */
  contextTokens: number;
  /** Rows of the KV cache: the most sequences that can be computed at once. */
  rowCount: number;
  /** Tokens of one KV block. */
  blockTokens: number;
  /** Bytes of keys and values of one token, all layers. */
  kvBytesPerToken: number;
}

/** One token for each of the rows 0 to tokenIds.length - 1, row r at position positions[r]. */
export interface DecodeBatch {
  tokenIds: readonly number[];
  positions: readonly number[];
  /** Rows computed at the least, 1 when absent: kernels may round otherwise for a batch of one. Rows beyond tokenIds.length must be free. */
  minRows?: number;
}

/** Several tokens of one sequence, fed onto the `start` tokens that its row already holds. */
export interface PrefillChunk {
  row: number;
  start: number;
  tokenIds: readonly number[];
  /** The logits of this many last positions are wanted; 0 computes keys and values only. */
  logitCount: number;
}

/** Keys and values of whole blocks, between a row and the block store. blockIds[i] belongs to the row's block firstBlock + i. */
export interface BlockCopy {
  row: number;
  firstBlock: number;
  blockIds: readonly number[];
}

export interface Engine {
  readonly shape: EngineShape;
  /** Logits [tokenIds.length, vocabSize], row-major; valid until the next call of decode. */
  decode(batch: DecodeBatch): Promise<Float32Array>;
  /** Logits [logitCount, vocabSize], row-major; valid until the next call of prefill. */
  prefill(chunk: PrefillChunk): Promise<Float32Array>;
  /** The first `tokens` positions of row `from` also in row `to`. */
  copyRow(copy: { from: number; to: number; tokens: number }): void;
  /** Row to block store. May be called while decode or prefill runs, for positions that it does not write. */
  saveBlocks(copy: BlockCopy): void;
  /** Block store to row. */
  loadBlocks(copy: BlockCopy): void;
  /** Gives the memory of a row's positions from `fromToken` on back to the system. */
  releaseRow(row: number, fromToken: number): void;
  /** Gives the memory of stored blocks back to the system. */
  releaseBlocks(blockIds: readonly number[]): void;
  /** Bytes of keys and values that take memory now, in whole pages; undefined where the system does not tell. */
  kvResidentBytes(): Promise<number | undefined>;
  /** Frees the model and the cache. No call may be in flight. */
  close(): void;
}
