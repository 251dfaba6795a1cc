/**
 * PaddedLlama: a GGUF file's model as onnxruntime-genai and transformers.js want it: one ONNX graph over padded batches whose cache goes in
 * and comes out, in the form that onnxruntime-genai's own model builder gives a model in 4 bits: grouped attention with the rotation in
 * it, symmetric blocks of 32 at accuracy level 4, head included. That form is faster than a lossless one of most files would be,
 * and less exact. Only the last position's logits are computed.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type GgufFile, type GgufTensor, openGguf } from '../../batcher/model/gguf-file.ts';
import { type LlamaShape, readLlamaShape, requireTensor } from '../../batcher/model/llama-shape.ts';
import { tensorFloats } from '../../batcher/model/matrix-form.ts';
import { OnnxGraph, type Region } from '../../batcher/model/onnx-graph.ts';
import { Scratch } from '../../batcher/model/scratch.ts';
import { WeightFile } from '../../batcher/model/weight-file.ts';
import { BLOCK, symmetricBlocks } from './symmetric-blocks.ts';

const GRAPH_FILE = 'model.onnx';
const DATA_FILE = 'model.onnx_data';
const ACCURACY_LEVEL = 4;

type Write = (data: WeightFile, file: GgufFile) => Promise<void>;

/** Of the folder made: the graph lies in `onnx/`, beside it what either library reads first. */
export async function writePaddedLlama(ggufPath: string, target: string): Promise<void> {
  await using file = await openGguf(ggufPath);
  const shape = readLlamaShape(file);
  const { graph, writes } = new PaddedLlama(file, shape).build();
  await mkdir(join(target, 'onnx'), { recursive: true });
  await writeFile(join(target, 'onnx', GRAPH_FILE), graph.encode('llama'));
  {
    await using data = await WeightFile.create(join(target, 'onnx', DATA_FILE), graph.dataBytes);
    for (const write of writes) await write(data, file);
    await data.finish();
  }
  await writeFile(join(target, 'config.json'), JSON.stringify(transformersConfig(shape)));
  await writeFile(join(target, 'genai_config.json'), JSON.stringify(genaiConfig(shape)));
}

class PaddedLlama {
  readonly #file: GgufFile;
  readonly #shape: LlamaShape;
  readonly #graph = new OnnxGraph(DATA_FILE);
  readonly #writes: Write[] = [];

  constructor(file: GgufFile, shape: LlamaShape) {
    this.#file = file;
    this.#shape = shape;
  }

  build(): { graph: OnnxGraph; writes: readonly Write[] } {
    const graph = this.#graph;
    const { vocabSize, layerCount, kvHeadCount, headDim, width, isTied } = this.#shape;
    graph.input({ name: 'input_ids', type: 'int64', dimensions: ['batch_size', 'tokens'] });
    graph.input({ name: 'attention_mask', type: 'int64', dimensions: ['batch_size', 'total'] });
    graph.output({ name: 'logits', type: 'float', dimensions: ['batch_size', 1, vocabSize] });
    for (let layer = 0; layer < layerCount; layer++) {
      for (const side of ['key', 'value']) {
        graph.input({ name: `past_key_values.${layer}.${side}`, type: 'float', dimensions: ['batch_size', kvHeadCount, 'past', headDim] });
        graph.output({ name: `present.${layer}.${side}`, type: 'float', dimensions: ['batch_size', kvHeadCount, 'total', headDim] });
      }
    }
    this.#lengths();
    this.#rotaryTables();
    graph.node('Gather', [this.#floats('token_embd.weight', [vocabSize, width]), 'input_ids'], ['x0']);
    const firstNorm = this.#floats('blk.0.attn_norm.weight', [width]);
    graph.node('SimplifiedLayerNormalization', ['x0', firstNorm], ['a0'], {
      ...{ axis: { int: -1 }, epsilon: { float: this.#shape.normEpsilon }, stash_type: { int: 1 } },
    });
    for (let layer = 0; layer < layerCount; layer++) this.#layer(layer);
    this.#int64s('last', [-1]);
    this.#int64s('end', [Number.MAX_SAFE_INTEGER]);
    this.#int64s('tokens_axis', [1]);
    graph.node('Slice', [`a${layerCount}`, 'last', 'end', 'tokens_axis'], ['last_position']);
    this.#product('last_position', [isTied ? 'token_embd.weight' : 'output.weight'], 'logits');
    return { graph, writes: this.#writes };
  }

  /** What grouped attention asks: each row's length less one, and the longest. */
  #lengths(): void {
    const graph = this.#graph;
    this.#int64s('one', [1]);
    this.#int64s('one_s', [1], []);
    graph.node('ReduceSum', ['attention_mask', 'one'], ['lengths'], { keepdims: { int: 0 } });
    graph.node('Sub', ['lengths', 'one'], ['lengths_less_one']);
    graph.node('Cast', ['lengths_less_one'], ['seqlens_k'], { to: { int: 6 } });
    graph.node('Shape', ['attention_mask'], ['mask_shape']);
    graph.node('Gather', ['mask_shape', 'one_s'], ['total64']);
    graph.node('Cast', ['total64'], ['total'], { to: { int: 6 } });
  }

  #layer(layer: number): void {
    const graph = this.#graph;
    const { layerCount, headCount, kvHeadCount, headDim } = this.#shape;
    const tensor = (name: string) => `blk.${layer}.${name}.weight`;
    this.#product(`a${layer}`, [tensor('attn_q'), tensor('attn_k'), tensor('attn_v')], `qkv${layer}`);
    graph.microsoftNode(
      'GroupQueryAttention',
      [`qkv${layer}`, '', '', `past_key_values.${layer}.key`, `past_key_values.${layer}.value`, 'seqlens_k', 'total', 'cos', 'sin'],
      [`heads${layer}`, `present.${layer}.key`, `present.${layer}.value`],
      {
        ...{ num_heads: { int: headCount }, kv_num_heads: { int: kvHeadCount } },
        ...{ do_rotary: { int: 1 }, scale: { float: headDim ** -0.5 } },
      },
    );
    this.#product(`heads${layer}`, [tensor('attn_output')], `o${layer}`);
    this.#addAndNormalize([`x${layer}`, `o${layer}`], tensor('ffn_norm'), [`f${layer}`, `r${layer}`]);
    this.#product(`f${layer}`, [tensor('ffn_gate')], `g${layer}`);
    this.#product(`f${layer}`, [tensor('ffn_up')], `u${layer}`);
    graph.node('Sigmoid', [`g${layer}`], [`s${layer}`]);
    graph.node('Mul', [`g${layer}`, `s${layer}`], [`silu${layer}`]);
    graph.node('Mul', [`silu${layer}`, `u${layer}`], [`gated${layer}`]);
    this.#product(`gated${layer}`, [tensor('ffn_down')], `d${layer}`);
    const next = layer + 1;
    const nextNorm = next === layerCount ? 'output_norm.weight' : `blk.${next}.attn_norm.weight`;
    this.#addAndNormalize([`r${layer}`, `d${layer}`], nextNorm, [`a${next}`, next === layerCount ? '' : `x${next}`]);
  }

  #addAndNormalize(terms: readonly [string, string], norm: string, [normal, sum]: readonly [string, string]): void {
    const outputs = sum === '' ? [normal] : [normal, '', '', sum];
    const weight = this.#floats(norm, [this.#shape.width]);
    this.#graph.microsoftNode('SkipSimplifiedLayerNormalization', [...terms, weight], outputs, {
      epsilon: { float: this.#shape.normEpsilon },
    });
  }

  /** y = x times the tensors' rows, one below the other. */
  #product(x: string, names: readonly string[], y: string): void {
    const tensors = names.map(name => requireTensor(this.#file, name));
    const { columns } = tensors[0]!;
    const rows = tensors.reduce((sum, tensor) => sum + tensor.rows, 0);
    if (columns % BLOCK !== 0) throw new Error(`${names[0]}: rows of ${columns} numbers do not come in blocks of ${BLOCK}`);
    const quants = this.#graph.region('uint8', (rows * columns) / 2);
    const scales = this.#graph.region('float', (rows * columns) / BLOCK);
    let element = 0;
    for (const tensor of tensors) {
      const start = element;
      this.#writes.push(async (data, file) => {
        const blocks = symmetricBlocks(await floatsOf(file, tensor, this.#shape.headDim));
        await data.write(quants.offset + start / 2, blocks.quants);
        await data.write(scales.offset + (start / BLOCK) * 4, bytesOf(blocks.scales));
      });
      element += tensor.rows * columns;
    }
    const weights = [
      this.#graph.weight(`${y}.q`, 'uint8', [rows, columns / BLOCK, BLOCK / 2], quants),
      this.#graph.weight(`${y}.d`, 'float', [(rows * columns) / BLOCK], scales),
    ];
    this.#graph.microsoftNode('MatMulNBits', [x, ...weights], [y], {
      ...{ K: { int: columns }, N: { int: rows }, bits: { int: 4 }, block_size: { int: BLOCK } },
      accuracy_level: { int: ACCURACY_LEVEL },
    });
  }

  #floats(tensorName: string, dimensions: readonly number[]): string {
    const region = this.#graph.region(
      'float',
      dimensions.reduce((product, size) => product * size, 1),
    );
    const tensor = requireTensor(this.#file, tensorName);
    this.#writes.push(async (data, file) => data.write(region.offset, bytesOf(await floatsOf(file, tensor, this.#shape.headDim))));
    return this.#graph.weight(tensorName, 'float', dimensions, region);
  }

  #rotaryTables(): void {
    const { contextTokens, headDim, ropeBase, ropeDivisor } = this.#shape;
    if (this.#file.tensors.has('rope_freqs.weight')) throw new Error('a file with rotary factors is not written for other libraries');
    const pairs = headDim / 2;
    for (const [name, wave] of [
      ['cos', Math.cos],
      ['sin', Math.sin],
    ] as const) {
      const region: Region = this.#graph.region('float', contextTokens * pairs);
      const angles = Float32Array.from({ length: contextTokens * pairs }, (_, at) =>
        wave((Math.floor(at / pairs) / ropeDivisor) * ropeBase ** ((-2 * (at % pairs)) / headDim)),
      );
      this.#writes.push(data => data.write(region.offset, bytesOf(angles)));
      this.#graph.weight(name, 'float', [contextTokens, pairs], region);
    }
  }

  #int64s(name: string, values: readonly number[], dimensions: readonly number[] = [values.length]): void {
    this.#graph.constant(name, 'int64', dimensions, new Uint8Array(BigInt64Array.from(values, BigInt).buffer));
  }
}

/** In the published order: llama GGUFs interleave the halves of each query and key head. */
async function floatsOf(file: GgufFile, tensor: GgufTensor, headDim: number): Promise<Float32Array> {
  const bytes = new Uint8Array(tensor.byteLength);
  await file.readRows(tensor, 0, tensor.rows, bytes);
  const floats = tensorFloats(tensor, bytes, new Scratch());
  if (!/\.attn_[qk]\.weight$/.test(tensor.name)) return floats;
  const ordered = new Float32Array(floats.length);
  for (let row = 0; row < tensor.rows; row++) {
    const inHead = row % headDim;
    const target = row - inHead + (inHead % 2) * (headDim / 2) + Math.floor(inHead / 2);
    ordered.set(floats.subarray(row * tensor.columns, (row + 1) * tensor.columns), target * tensor.columns);
  }
  return ordered;
}

function bytesOf(floats: Float32Array): Uint8Array {
  return new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength);
}

/** What transformers.js reads of a model's own description. */
function transformersConfig(shape: LlamaShape): Record<string, unknown> {
  return {
    ...{ architectures: ['LlamaForCausalLM'], model_type: 'llama', hidden_size: shape.width, num_hidden_layers: shape.layerCount },
    ...{ num_attention_heads: shape.headCount, num_key_value_heads: shape.kvHeadCount, head_dim: shape.headDim },
    ...{ vocab_size: shape.vocabSize, max_position_embeddings: shape.contextTokens, bos_token_id: 1, eos_token_id: 2 },
  };
}

function genaiConfig(shape: LlamaShape): Record<string, unknown> {
  return {
    model: {
      ...{ type: 'llama', bos_token_id: 1, eos_token_id: [2], pad_token_id: 2 },
      ...{ context_length: shape.contextTokens, vocab_size: shape.vocabSize },
      decoder: {
        session_options: { log_id: 'onnxruntime-genai', provider_options: [] },
        filename: `onnx/${GRAPH_FILE}`,
        ...{ head_size: shape.headDim, hidden_size: shape.width, num_hidden_layers: shape.layerCount },
        ...{ num_attention_heads: shape.headCount, num_key_value_heads: shape.kvHeadCount },
        inputs: {
          ...{ input_ids: 'input_ids', attention_mask: 'attention_mask' },
          ...{ past_key_names: 'past_key_values.%d.key', past_value_names: 'past_key_values.%d.value' },
        },
        outputs: { logits: 'logits', present_key_names: 'present.%d.key', present_value_names: 'present.%d.value' },
      },
    },
    search: { do_sample: false, max_length: shape.contextTokens, past_present_share_buffer: true },
  };
}
