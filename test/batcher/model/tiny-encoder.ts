/** TinyEncoder: a whole sentence-transformers folder of two layers with random weights, and what it computes, written down plainly. */
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { seededRandom } from './random-tensor.ts';
import { temporaryFolder } from './temporary-folder.ts';

const SHAPE = { layers: 2, width: 8, heads: 2, feedForward: 16, vocab: 24, positions: 12 };
const EPSILON = 1e-12;

export interface TinyEncoderOptions {
  pooling?: 'mean' | 'first';
  isNormalized?: boolean;
  /** In front of the tensors' names. */
  prefix?: string;
  type?: 'F32' | 'F16' | 'BF16';
  /** Replaces fields of files; undefined for a file leaves it out. */
  files?: Record<string, object | string | undefined>;
}

export interface TinyEncoder {
  folder: string;
  /** The vector of a text, by a plain computation. */
  vector(tokenIds: readonly number[]): number[];
}

export const TINY_PIECES = [
  '[PAD]',
  '[UNK]',
  '[CLS]',
  '[SEP]',
  '[MASK]',
  ...'abcdefghij',
  '##a',
  '##b',
  '##c',
  '.',
  '!',
  'ab',
  'the',
  'car',
  '漢',
];

type Matrix = number[][];

export async function tinyEncoder(options: TinyEncoderOptions = {}): Promise<TinyEncoder> {
  const { pooling = 'mean', isNormalized = true, prefix = '', type = 'F32', files = {} } = options;
  const folder = join(await temporaryFolder(), 'Tiny Encoder');
  const random = seededRandom(7);
  const tensors = new Map<string, { dimensions: number[]; values: number[] }>();
  const add = (name: string, ...dimensions: number[]) => {
    const count = dimensions.reduce((product, dimension) => product * dimension, 1);
    tensors.set(name, { dimensions, values: Array.from({ length: count }, () => rounded(random() - 0.5, type)) });
  };
  const { layers, width, feedForward, vocab, positions } = SHAPE;
  add('embeddings.word_embeddings.weight', vocab, width);
  add('embeddings.position_embeddings.weight', positions, width);
  add('embeddings.token_type_embeddings.weight', 2, width);
  const norm = (name: string) => {
    add(`${name}.weight`, width);
    add(`${name}.bias`, width);
  };
  const dense = (name: string, to: number, from: number) => {
    add(`${name}.weight`, to, from);
    add(`${name}.bias`, to);
  };
  norm('embeddings.LayerNorm');
  for (let layer = 0; layer < layers; layer++) {
    const at = `encoder.layer.${layer}`;
    for (const side of ['query', 'key', 'value']) dense(`${at}.attention.self.${side}`, width, width);
    dense(`${at}.attention.output.dense`, width, width);
    norm(`${at}.attention.output.LayerNorm`);
    dense(`${at}.intermediate.dense`, feedForward, width);
    dense(`${at}.output.dense`, width, feedForward);
    norm(`${at}.output.LayerNorm`);
  }
  const written: Record<string, object | string | Uint8Array | undefined> = {
    'config.json': {
      ...{ model_type: 'bert', hidden_act: 'gelu', hidden_size: width, intermediate_size: feedForward, num_hidden_layers: layers },
      ...{ num_attention_heads: SHAPE.heads, vocab_size: vocab, max_position_embeddings: positions, layer_norm_eps: EPSILON },
    },
    'tokenizer.json': {
      normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
      pre_tokenizer: { type: 'BertPreTokenizer' },
      added_tokens: [0, 1, 2, 3, 4].map(id => ({ id, content: TINY_PIECES[id], special: true })),
      model: { type: 'WordPiece', unk_token: '[UNK]', vocab: Object.fromEntries(TINY_PIECES.map((piece, id) => [piece, id])) },
    },
    '1_Pooling/config.json': { pooling_mode_mean_tokens: pooling === 'mean', pooling_mode_cls_token: pooling === 'first' },
    'modules.json': ['Transformer', 'Pooling', ...(isNormalized ? ['Normalize'] : [])].map(kind => ({
      type: `sentence_transformers.models.${kind}`,
    })),
    'sentence_bert_config.json': { max_seq_length: 10 },
    'model.safetensors': safetensors(new Map([...tensors].map(([name, tensor]) => [prefix + name, tensor])), type),
    ...files,
  };
  for (const [name, content] of Object.entries(written)) {
    if (content === undefined) continue;
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), typeof content === 'string' || content instanceof Uint8Array ? content : JSON.stringify(content));
  }
  return { folder, vector: tokenIds => compute(tokenIds, tensors, { pooling, isNormalized }) };
}

export function safetensors(
  tensors: ReadonlyMap<string, { dimensions: number[]; values: number[] }>,
  type: 'F32' | 'F16' | 'BF16',
): Uint8Array {
  const header: Record<string, object> = { __metadata__: { format: 'pt' } };
  const parts: Uint8Array[] = [];
  let at = 0;
  for (const [name, { dimensions, values }] of tensors) {
    const bytes = bytesOf(values, type);
    header[name] = { dtype: type, shape: dimensions, data_offsets: [at, at + bytes.length] };
    parts.push(bytes);
    at += bytes.length;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const length = new Uint8Array(BigUint64Array.of(BigInt(json.length)).buffer);
  return Buffer.concat([length, json, ...parts]);
}

function bytesOf(values: readonly number[], type: 'F32' | 'F16' | 'BF16'): Uint8Array {
  const floats = Float32Array.from(values);
  if (type === 'F32') return new Uint8Array(floats.buffer);
  if (type === 'BF16') return new Uint8Array(Uint16Array.from(new Uint32Array(floats.buffer), bits => bits >>> 16).buffer);
  return new Uint8Array(new Float16Array(values).buffer);
}

/** As the file can hold it. */
function rounded(value: number, type: 'F32' | 'F16' | 'BF16'): number {
  if (type === 'F16') return Math.f16round(value);
  if (type === 'F32') return Math.fround(value);
  const bits = new Uint32Array(Float32Array.of(value).buffer);
  return new Float32Array(Uint32Array.of(bits[0]! & 0xffff0000).buffer)[0]!;
}

function compute(
  tokenIds: readonly number[],
  tensors: ReadonlyMap<string, { dimensions: number[]; values: number[] }>,
  { pooling, isNormalized }: { pooling: string; isNormalized: boolean },
): number[] {
  const row = (name: string, index: number): number[] => {
    const { dimensions, values } = tensors.get(name)!;
    const width = dimensions.at(-1)!;
    return values.slice(index * width, (index + 1) * width);
  };
  const norm = (x: readonly number[], name: string): number[] => {
    const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    const [weight, bias] = [row(`${name}.weight`, 0), row(`${name}.bias`, 0)];
    return x.map((value, i) => ((value - mean) / Math.sqrt(variance + EPSILON)) * weight[i]! + bias[i]!);
  };
  const dense = (x: readonly number[], name: string): number[] =>
    row(`${name}.bias`, 0).map((bias, to) => bias + dot(row(`${name}.weight`, to), x));
  const add = (a: readonly number[], b: readonly number[]) => a.map((value, i) => value + b[i]!);
  let x: Matrix = tokenIds.map((id, place) => {
    const type = row('embeddings.token_type_embeddings.weight', 0);
    const word = row('embeddings.word_embeddings.weight', id);
    return norm(add(add(word, row('embeddings.position_embeddings.weight', place)), type), 'embeddings.LayerNorm');
  });
  for (let layer = 0; layer < SHAPE.layers; layer++) {
    const at = `encoder.layer.${layer}`;
    const [q, k, v] = ['query', 'key', 'value'].map(side => x.map(one => dense(one, `${at}.attention.self.${side}`))) as [
      Matrix,
      Matrix,
      Matrix,
    ];
    const size = SHAPE.width / SHAPE.heads;
    const seen = x.map((_, i) =>
      Array.from({ length: SHAPE.heads }, (_, head) => {
        const part = (of: readonly number[]) => of.slice(head * size, (head + 1) * size);
        const weights = softmax(k.map(key => dot(part(q[i]!), part(key)) / Math.sqrt(size)));
        return Array.from({ length: size }, (_, j) => weights.reduce((sum, weight, other) => sum + weight * part(v[other]!)[j]!, 0));
      }).flat(),
    );
    x = x.map((one, i) => {
      const attended = norm(add(one, dense(seen[i]!, `${at}.attention.output.dense`)), `${at}.attention.output.LayerNorm`);
      const inner = dense(attended, `${at}.intermediate.dense`).map(gelu);
      return norm(add(attended, dense(inner, `${at}.output.dense`)), `${at}.output.LayerNorm`);
    });
  }
  const vector = pooling === 'first' ? x[0]! : x[0]!.map((_, j) => x.reduce((sum, one) => sum + one[j]!, 0) / x.length);
  return isNormalized ? vector.map(value => value / Math.hypot(...vector)) : vector;
}

const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);

function softmax(scores: readonly number[]): number[] {
  const exps = scores.map(score => Math.exp(score - Math.max(...scores)));
  const sum = exps.reduce((total, value) => total + value, 0);
  return exps.map(value => value / sum);
}

/** By the error function, as a series that converges everywhere near 0. */
function gelu(x: number): number {
  const z = x / Math.SQRT2;
  let [term, sum] = [z, z];
  for (let n = 1; n < 60; n++) {
    term *= (-z * z) / n;
    sum += term / (2 * n + 1);
  }
  return (x * (1 + (2 / Math.sqrt(Math.PI)) * sum)) / 2;
}
