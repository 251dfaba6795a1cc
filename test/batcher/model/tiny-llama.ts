/** TinyLlama: a complete GGUF of the llama family, of two layers with random weights, any tensor type for any matrix; a vocabulary of bytes. */
import type { TensorTypeName } from '../../../batcher/model/tensor-type.ts';
import type { GgufSpec, MetadataValue, TensorSpec } from './gguf-writer.ts';
import { floatBytes, LAYOUTS, randomTensorBytes, seededRandom } from './random-tensor.ts';

export const TINY = { layers: 2, width: 256, heads: 8, kvHeads: 4, headDim: 32, feedForward: 512, vocab: 288, context: 64 } as const;

export interface TinyOptions {
  /** `llama` when absent; qwen2 has biases, qwen3 norms of each head. */
  architecture?: 'llama' | 'qwen2' | 'qwen3';
  /** Of queries, keys and values. */
  hasBiases?: boolean;
  /** Type of the layers' matrices, by their short names (attn_q …); the value of `other` for the rest. */
  types?: Record<string, TensorTypeName>;
  other?: TensorTypeName;
  embedding?: TensorTypeName;
  /** Absent: the head is tied to the embedding. */
  head?: TensorTypeName;
  seed?: number;
  metadata?: Record<string, MetadataValue>;
  ropeFactors?: number[];
}

export function tinyLlama({
  architecture = 'llama',
  hasBiases = architecture === 'qwen2',
  types = {},
  other = 'F32',
  embedding = 'F32',
  head,
  seed = 1,
  metadata = {},
  ropeFactors,
}: TinyOptions = {}): GgufSpec {
  const random = seededRandom(seed);
  const { layers, width, heads, kvHeads, headDim, feedForward, vocab, context } = TINY;
  const tensors: TensorSpec[] = [];
  const matrix = (name: string, [columns, rows]: readonly [number, number], type: TensorTypeName): void => {
    tensors.push({ name, dimensions: [columns, rows], type: LAYOUTS[type].code, data: randomTensorBytes(type, columns * rows, random) });
  };
  const vector = (name: string, length: number, least: number): void => {
    const values = Array.from({ length }, () => least + random());
    tensors.push({ name, dimensions: [length], type: 0, data: floatBytes(values) });
  };
  const norm = (name: string, length: number = width): void => vector(name, length, 0.5);
  matrix('token_embd.weight', [width, vocab], embedding);
  const shapes: Record<string, readonly [number, number]> = {
    attn_q: [width, heads * headDim],
    attn_k: [width, kvHeads * headDim],
    attn_v: [width, kvHeads * headDim],
    attn_output: [heads * headDim, width],
    ffn_gate: [width, feedForward],
    ffn_up: [width, feedForward],
    ffn_down: [feedForward, width],
  };
  for (let layer = 0; layer < layers; layer++) {
    norm(`blk.${layer}.attn_norm.weight`);
    norm(`blk.${layer}.ffn_norm.weight`);
    if (architecture === 'qwen3') for (const side of ['q', 'k']) norm(`blk.${layer}.attn_${side}_norm.weight`, headDim);
    if (hasBiases) for (const name of ['attn_q', 'attn_k', 'attn_v']) vector(`blk.${layer}.${name}.bias`, shapes[name]![1], -0.5);
    for (const [name, shape] of Object.entries(shapes)) matrix(`blk.${layer}.${name}.weight`, shape, types[name] ?? other);
  }
  norm('output_norm.weight');
  if (head !== undefined) matrix('output.weight', [width, vocab], head);
  if (ropeFactors !== undefined)
    tensors.push({ name: 'rope_freqs.weight', dimensions: [ropeFactors.length], type: 0, data: floatBytes(ropeFactors) });
  return {
    tensors,
    metadata: {
      // llama.cpp takes it for the width of qwen3's heads, which it would guess otherwise.
      [`${architecture}.attention.key_length`]: { u32: headDim },
      [`${architecture}.attention.value_length`]: { u32: headDim },
      'general.architecture': { text: architecture },
      [`${architecture}.block_count`]: { u32: layers },
      [`${architecture}.context_length`]: { u32: context },
      [`${architecture}.embedding_length`]: { u32: width },
      [`${architecture}.feed_forward_length`]: { u32: feedForward },
      [`${architecture}.attention.head_count`]: { u32: heads },
      [`${architecture}.attention.head_count_kv`]: { u32: kvHeads },
      [`${architecture}.attention.layer_norm_rms_epsilon`]: { f32: 1e-5 },
      [`${architecture}.rope.freq_base`]: { f32: 10_000 },
      [`${architecture}.rope.dimension_count`]: { u32: headDim },
      ...byteVocabulary(),
      ...metadata,
    },
  };
}

/** 256 bytes in GPT-2's disguise, a few control tokens, and "he" as the only merge; the rest is unused. */
export function byteVocabulary(): Record<string, MetadataValue> {
  const printable = (byte: number): boolean => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  const bytes = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
  const tokens = [...bytes, '<|endoftext|>', '<|im_start|>', '<|im_end|>', 'he'];
  while (tokens.length < TINY.vocab) tokens.push(`<unused${tokens.length}>`);
  return {
    'tokenizer.ggml.model': { text: 'gpt2' },
    'tokenizer.ggml.pre': { text: 'gpt-2' },
    'tokenizer.ggml.tokens': { texts: tokens },
    'tokenizer.ggml.token_type': { i32s: tokens.map((_, id) => (id < 256 || id === 259 ? 1 : id < 259 ? 3 : 5)) },
    'tokenizer.ggml.merges': { texts: ['h e'] },
    'tokenizer.ggml.eos_token_id': { u32: 258 },
  };
}
