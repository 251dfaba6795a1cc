/** EncoderEngine: the seam between what decides which texts are embedded together and what computes; a fake one needs no weights. */

export interface EncoderEngineShape {
  /** Numbers of a vector. */
  width: number;
  vocabSize: number;
  /** Tokens of a text. */
  contextTokens: number;
}

export interface EncoderEngine {
  readonly shape: EncoderEngineShape;
  /** Vectors [texts.length, width], row-major; valid until the next call. A text has at least one token. */
  embed(texts: readonly (readonly number[])[]): Promise<Float32Array>;
  /** Frees the model. No call may be in flight. */
  close(): void;
}
