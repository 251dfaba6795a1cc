/**
 * LlamaShape: the sizes of a model of the llama family (llama, and so Mistral; qwen2; qwen3) and all that its metadata says about how to compute it.
 * What would change the result and is not supported is refused here, in words; nothing is silently ignored.
 */
import type { GgufFile, GgufTensor, GgufValue } from './gguf-file.ts';
import { ModelError } from './model-error.ts';

export interface LlamaShape {
  layerCount: number;
  width: number;
  headCount: number;
  kvHeadCount: number;
  headDim: number;
  feedForwardWidth: number;
  vocabSize: number;
  contextTokens: number;
  normEpsilon: number;
  /** Rotary position embedding: angle of pair i at position p is p / ropeDivisor * ropeBase ** (-2 i / headDim). */
  ropeBase: number;
  ropeDivisor: number;
  /** The head shares the embedding's weights. */
  isTied: boolean;
  /** Rows of queries and keys lie in the file with the two of each rotary pair side by side; otherwise the halves of a head one after the other. */
  hasPairedRows: boolean;
  /** Queries, keys and values are a product and a bias. */
  hasBiases: boolean;
  /** Each head's query and key is normalized before it is rotated. */
  hasHeadNorms: boolean;
}

/** How the architectures differ. Biases are there or not, by the file. */
const ARCHITECTURES = {
  llama: { hasPairedRows: true, mayHaveBiases: true, hasHeadNorms: false },
  qwen2: { hasPairedRows: false, mayHaveBiases: true, hasHeadNorms: false },
  qwen3: { hasPairedRows: false, mayHaveBiases: false, hasHeadNorms: true },
} as const;
type Architecture = keyof typeof ARCHITECTURES;

const LAYER_MATRICES = ['attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_gate', 'ffn_up', 'ffn_down'] as const;
const LAYER_NORMS = ['attn_norm', 'ffn_norm'] as const;
const HEAD_NORMS = ['attn_q_norm', 'attn_k_norm'] as const;
/** In the order in which the graph has their products side by side. */
export const BIASED_MATRICES = ['attn_q', 'attn_k', 'attn_v'] as const satisfies readonly (typeof LAYER_MATRICES)[number][];
export type LayerMatrixName = (typeof LAYER_MATRICES)[number];

export function readLlamaShape(file: GgufFile): LlamaShape {
  const architecture = architectureOf(file);
  const { hasPairedRows, mayHaveBiases, hasHeadNorms } = ARCHITECTURES[architecture];
  const number = (key: string, least: number): number => requireNumber(file, `${architecture}.${key}`, least);
  const optional = (key: string, least: number): number | undefined =>
    file.metadata.has(`${architecture}.${key}`) ? number(key, least) : undefined;

  const width = number('embedding_length', 1);
  const headCount = number('attention.head_count', 1);
  const kvHeadCount = optional('attention.head_count_kv', 1) ?? headCount;
  const headDim = optional('attention.key_length', 1) ?? width / headCount;
  const embedding = requireTensor(file, 'token_embd.weight');
  const contextTokens = number('context_length', 1);
  const shape: LlamaShape = {
    layerCount: number('block_count', 1),
    width,
    headCount,
    kvHeadCount,
    headDim,
    feedForwardWidth: number('feed_forward_length', 1),
    vocabSize: embedding.rows,
    // Past a sliding window the full attention computed here would no longer be the model's.
    contextTokens: Math.min(contextTokens, optional('attention.sliding_window', 1) ?? contextTokens),
    normEpsilon: number('attention.layer_norm_rms_epsilon', 0),
    ropeBase: optional('rope.freq_base', 1) ?? 10_000,
    ropeDivisor: ropeDivisorOf(file, architecture),
    isTied: !file.tensors.has('output.weight'),
    hasPairedRows,
    hasBiases: mayHaveBiases && file.tensors.has('blk.0.attn_q.bias'),
    hasHeadNorms,
  };
  refuseUnsupported(file, architecture, shape);
  checkTensors(file, shape);
  return shape;
}

function architectureOf({ fileName, metadata }: GgufFile): Architecture {
  const architecture = metadata.get('general.architecture') ?? 'none';
  if (typeof architecture === 'string' && Object.hasOwn(ARCHITECTURES, architecture)) return architecture as Architecture;
  const supported = Object.keys(ARCHITECTURES).map(name => JSON.stringify(name));
  throw new ModelError(`${fileName}: has the architecture ${JSON.stringify(architecture)}; supported are ${supported.join(', ')}.`);
}

function refuseUnsupported(file: GgufFile, architecture: Architecture, { headCount, kvHeadCount, headDim }: LlamaShape): void {
  const { fileName, metadata } = file;
  const get = (key: string): GgufValue | undefined => metadata.get(`${architecture}.${key}`);
  const refuse = (what: string, supported: string): never => {
    throw new ModelError(`${fileName}: ${what}; supported is ${supported}.`);
  };
  if (!Number.isInteger(headDim) || headDim % 8 !== 0) refuse(`has attention heads of ${headDim} numbers`, 'a multiple of 8');
  if (headCount % kvHeadCount !== 0)
    refuse(`shares ${kvHeadCount} key heads among ${headCount} query heads`, 'a whole number of query heads a key head');
  const valueLength = get('attention.value_length') ?? headDim;
  if (valueLength !== headDim) refuse(`has values of ${String(valueLength)} and keys of ${headDim} numbers a head`, 'equal lengths');
  const ropeDimensions = get('rope.dimension_count') ?? headDim;
  if (ropeDimensions !== headDim) refuse(`rotates ${String(ropeDimensions)} of ${headDim} numbers a head`, 'rotation of whole heads');
  if (get('attention.causal') === false) refuse('attends to later positions (an encoder)', 'causal attention');
  const experts = get('expert_count') ?? 0;
  if (experts !== 0) refuse(`is a mixture of ${String(experts)} experts`, 'a dense model');
}

/** Linear scaling divides positions; the per-frequency factors of a `rope_freqs.weight` tensor are applied with the tables. */
function ropeDivisorOf({ fileName, metadata }: GgufFile, architecture: Architecture): number {
  const get = (key: string): GgufValue | undefined => metadata.get(`${architecture}.rope.${key}`);
  const linear = get('scale_linear');
  const type = get('scaling.type') ?? (linear === undefined ? 'none' : 'linear');
  if (type === 'none') return 1;
  const factor = get('scaling.factor') ?? linear ?? 1;
  if (type === 'linear' && typeof factor === 'number' && factor > 0) return factor;
  throw new ModelError(
    `${fileName}: scales rotary positions by ${JSON.stringify(type)} with factor ${String(factor)}; supported are "none", "linear" and a rope_freqs.weight tensor.`,
  );
}

/** Every tensor that the graph needs is there with the right size, and no other is: an unknown one would change the result. */
function checkTensors(file: GgufFile, shape: LlamaShape): void {
  const { layerCount, width, headCount, kvHeadCount, headDim, feedForwardWidth, vocabSize } = shape;
  const queryWidth = headCount * headDim;
  const keyWidth = kvHeadCount * headDim;
  const expected = new Map<string, readonly [columns: number, rows: number]>([
    ['token_embd.weight', [width, vocabSize]],
    ['output_norm.weight', [width, 1]],
  ]);
  if (!shape.isTied) expected.set('output.weight', [width, vocabSize]);
  if (file.tensors.has('rope_freqs.weight')) expected.set('rope_freqs.weight', [headDim / 2, 1]);
  const sizes: Record<LayerMatrixName, readonly [number, number]> = {
    attn_q: [width, queryWidth],
    attn_k: [width, keyWidth],
    attn_v: [width, keyWidth],
    attn_output: [queryWidth, width],
    ffn_gate: [width, feedForwardWidth],
    ffn_up: [width, feedForwardWidth],
    ffn_down: [feedForwardWidth, width],
  };
  for (let layer = 0; layer < layerCount; layer++) {
    for (const name of LAYER_NORMS) expected.set(`blk.${layer}.${name}.weight`, [width, 1]);
    for (const name of LAYER_MATRICES) expected.set(`blk.${layer}.${name}.weight`, sizes[name]);
    for (const name of shape.hasHeadNorms ? HEAD_NORMS : []) expected.set(`blk.${layer}.${name}.weight`, [headDim, 1]);
    for (const name of shape.hasBiases ? BIASED_MATRICES : []) expected.set(`blk.${layer}.${name}.bias`, [sizes[name][1], 1]);
    // Bounds the loop by the file, whatever block_count says.
    requireTensor(file, `blk.${layer}.attn_q.weight`);
  }
  for (const [name, [columns, rows]] of expected) {
    const tensor = requireTensor(file, name);
    if (tensor.columns !== columns || tensor.rows !== rows) {
      throw new ModelError(
        `${file.fileName}: tensor ${name} is ${tensor.rows} × ${tensor.columns}; by the metadata it must be ${rows} × ${columns}.`,
      );
    }
  }
  for (const name of file.tensors.keys()) {
    // Rotary frequencies as old converters wrote them into each layer: derived numbers, computed anew here.
    const isDerived = /^blk\.\d+\.(attn_rot_embd|rope_freqs)\.weight$|^blk\.\d+\.attn_rot_embd$/.test(name);
    if (!expected.has(name) && !isDerived) {
      throw new ModelError(
        `${file.fileName}: has the tensor ${name}, which the supported graph (no experts, no adapters, biases of queries, keys and values only) does not use.`,
      );
    }
  }
}

export function requireTensor(file: GgufFile, name: string): GgufTensor {
  const tensor = file.tensors.get(name);
  if (tensor === undefined) throw new ModelError(`${file.fileName}: has no tensor ${name}, which its architecture needs.`);
  return tensor;
}

/** Some converters write one number a layer; that is fine where all are the same. */
function requireNumber(file: GgufFile, key: string, least: number): number {
  let value = file.metadata.get(key);
  if (Array.isArray(value)) {
    const [first] = value;
    if (value.some(other => other !== first))
      throw new ModelError(`${file.fileName}: ${key} differs from layer to layer; supported is one number for all.`);
    value = first;
  }
  if (typeof value !== 'number' || !Number.isFinite(value) || value < least) {
    throw new ModelError(
      `${file.fileName}: ${key} is ${value === undefined ? 'missing' : String(value)}; a number of at least ${least} is needed.`,
    );
  }
  return value;
}
