/**
 * LlamaGraph: the decoder of the llama family as an ONNX graph, over the weights of one GGUF file.
 *
 * Inputs: input_ids int64 [batch, tokens]; seqlens_k int32 [batch], total length of each row minus 1; total int32 scalar, the longest
 * total length; pick int64 [picked], the flat positions (row * tokens + token) whose logits are wanted; past_k{i} and past_v{i}
 * float32 or float16 [batch, kv_heads, max_tokens, head_dim]. Outputs: logits float32 [picked, vocabulary]; present_k{i} and present_v{i}, meant
 * to be the same buffers as past.
 *
 * Activations are flat, [positions, width], except around attention, so that every projection is one product, and a projection
 * with block offsets is  MatMulNBits(x) + blocksum(x) · offsetsᵀ  in one Gemm that adds both. Where our own kernels run, a projection is
 * one TiledMatMul, offsets and the gate of the feed-forward network included.
 */
import type { KvType } from '../engine/engine.ts';
import type { GgufFile } from './gguf-file.ts';
import { GraphWeights, type MatrixPart, type StoredMatrix } from './graph-weights.ts';
import { BIASED_MATRICES, type LayerMatrixName, type LlamaShape } from './llama-shape.ts';
import { type FormChoice, isSameForm, type Kernels } from './matrix-form.ts';
import { type Attribute, OnnxGraph } from './onnx-graph.ts';

export interface LlamaGraph {
  graph: OnnxGraph;
  weights: GraphWeights;
  /** Attention is our own kernel, which takes a cache in float16 too. */
  hasAttentionKernel: boolean;
  /** A token gets the same bits in every batch, by prefill in chunks of any size and by decode steps: everything that could round otherwise is ours. */
  isBatchInvariant: boolean;
}

/** 8-bit activations inside MatMulNBits: the fast path of the CPU kernels (0.4 to 0.7 % error of a product's largest value). */
const ACCURACY_LEVEL = 4;

export interface LlamaGraphOptions extends FormChoice {
  /** Of the KV cache; f16 needs the kernels. */
  kvType: KvType;
  /** As the graph file names it: without folders. */
  dataFileName: string;
}

/** The finished graph; its weights are declared and still to be written. */
export async function buildLlamaGraph(file: GgufFile, shape: LlamaShape, options: LlamaGraphOptions): Promise<LlamaGraph> {
  const graph = new OnnxGraph(options.dataFileName);
  const weights = new GraphWeights(graph, file, options);
  // Llama 3.1 and later give a divisor for each rotary frequency.
  const ropeFactors = file.tensors.has('rope_freqs.weight') ? await weights.floats('rope_freqs.weight') : undefined;
  const builder = new LlamaBuilder(graph, weights, { shape, ropeFactors, kernels: options.kernels, kvType: options.kvType });
  builder.build();
  const { hasAttentionKernel } = builder;
  return { graph, weights, hasAttentionKernel, isBatchInvariant: hasAttentionKernel && weights.areAllTiles };
}

class LlamaBuilder {
  readonly #graph: OnnxGraph;
  readonly #weights: GraphWeights;
  readonly #shape: LlamaShape;
  readonly #ropeFactors: Float32Array | undefined;
  readonly #kernels: Kernels;
  readonly #kvType: KvType;
  /** Values whose block sums are already in the graph. */
  readonly #summed = new Set<string>();

  constructor(
    graph: OnnxGraph,
    weights: GraphWeights,
    model: { shape: LlamaShape; ropeFactors: Float32Array | undefined; kernels: Kernels; kvType: KvType },
  ) {
    this.#graph = graph;
    this.#weights = weights;
    this.#shape = model.shape;
    this.#ropeFactors = model.ropeFactors;
    this.#kernels = model.kernels;
    this.#kvType = model.kvType;
  }

  build(): void {
    const graph = this.#graph;
    const { layerCount, vocabSize, hasHeadNorms } = this.#shape;
    graph.input({ name: 'input_ids', type: 'int64', dimensions: ['batch', 'tokens'] });
    graph.input({ name: 'seqlens_k', type: 'int32', dimensions: ['batch'] });
    graph.input({ name: 'total', type: 'int32', dimensions: [] });
    graph.input({ name: 'pick', type: 'int64', dimensions: ['picked'] });
    graph.output({ name: 'logits', type: 'float', dimensions: ['picked', vocabSize] });

    this.#int64s('flat', [-1]);
    this.#rotaryTables();
    if (!this.hasAttentionKernel) this.#attentionShapes();
    if (hasHeadNorms) this.#headShapes();
    graph.node('Reshape', ['input_ids', 'flat'], ['ids']);
    const embedding = this.#weights.matrix([{ tensorName: 'token_embd.weight' }], 'embedding');
    this.#embed(embedding, 'ids', 'x0');

    this.#normalize('x0', this.#weights.vector('blk.0.attn_norm.weight'), 'a0');
    for (let layer = 0; layer < layerCount; layer++) this.#layer(layer);

    graph.node('Gather', [`a${layerCount}`, 'pick'], ['picked_rows']);
    const head = this.#head(embedding);
    this.#product('picked_rows', head, 'head', 'logits');
  }

  /** Of tied ones, the embedding itself where both want it in one form. */
  #head(embedding: StoredMatrix): StoredMatrix {
    const part = { tensorName: this.#shape.isTied ? 'token_embd.weight' : 'output.weight' };
    const isShared = this.#shape.isTied && isSameForm(this.#weights.formOf(part, 'embedding'), this.#weights.formOf(part, 'head'));
    return isShared ? embedding : this.#weights.matrix([part], 'head');
  }

  #layer(layer: number): void {
    const graph = this.#graph;
    const { layerCount, kvHeadCount, headDim } = this.#shape;
    const part = (name: LayerMatrixName): MatrixPart => ({ tensorName: `blk.${layer}.${name}.weight` });

    this.#queriesKeysValues(layer);
    this.#attention(layer);
    for (const side of ['k', 'v']) {
      const dimensions = ['batch', kvHeadCount, 'max_tokens', headDim];
      const type = this.#kvType === 'f16' ? 'float16' : 'float';
      graph.input({ name: `past_${side}${layer}`, type, dimensions });
      graph.output({ name: `present_${side}${layer}`, type, dimensions });
    }
    this.#concatenated(`heads${layer}`, [part('attn_output')], `o${layer}`);
    this.#addAndNormalize([`x${layer}`, `o${layer}`], `blk.${layer}.ffn_norm.weight`, { normal: `f${layer}`, sum: `r${layer}` });

    this.#gated(`f${layer}`, [part('ffn_gate'), part('ffn_up')], layer);
    this.#concatenated(`gated${layer}`, [part('ffn_down')], `d${layer}`);
    const next = layer + 1;
    const nextNorm = next === layerCount ? 'output_norm.weight' : `blk.${next}.attn_norm.weight`;
    this.#addAndNormalize([`r${layer}`, `d${layer}`], nextNorm, { normal: `a${next}`, sum: next === layerCount ? '' : `x${next}` });
  }

  /** From a{layer} to qkv{layer}, as attention takes it. */
  #queriesKeysValues(layer: number): void {
    const graph = this.#graph;
    const { headDim, hasPairedRows, hasBiases, hasHeadNorms } = this.#shape;
    const parts = (kind: 'weight' | 'bias') =>
      BIASED_MATRICES.map((name): MatrixPart => {
        const tensorName = `blk.${layer}.${name}.${kind}`;
        return hasPairedRows && name !== 'attn_v' ? { tensorName, interleavedHeadDim: headDim } : { tensorName };
      });
    const qkv = `qkv${layer}`;
    const biased = hasHeadNorms ? `${qkv}.plain` : qkv;
    const product = hasBiases ? `${qkv}.unbiased` : biased;
    this.#concatenated(`a${layer}`, parts('weight'), product);
    if (hasBiases) graph.node('Add', [product, this.#weights.vectors(parts('bias'), `${qkv}.bias`)], [biased]);
    if (hasHeadNorms) this.#normalizeHeads(layer, biased, qkv);
  }

  /** Of queries and keys; values stay as they are. */
  #normalizeHeads(layer: number, x: string, y: string): void {
    const graph = this.#graph;
    const [queries, keys, values] = [`${x}.queries`, `${x}.keys`, `${x}.values`];
    graph.node('Split', [x, 'qkv_widths'], [queries, keys, values], { axis: { int: -1 } });
    const normalized = (side: string, norm: string, together: string): string => {
      graph.node('Reshape', [side, 'heads_apart'], [`${side}.heads`]);
      this.#normalize(`${side}.heads`, this.#weights.vector(`blk.${layer}.${norm}.weight`), `${side}.normal`);
      graph.node('Reshape', [`${side}.normal`, together], [`${side}.together`]);
      return `${side}.together`;
    };
    const normal = [normalized(queries, 'attn_q_norm', 'queries_together'), normalized(keys, 'attn_k_norm', 'keys_together')];
    graph.node('Concat', [...normal, values], [y], { axis: { int: -1 } });
  }

  #headShapes(): void {
    const { headCount, kvHeadCount, headDim } = this.#shape;
    const [queryWidth, keyWidth] = [headCount * headDim, kvHeadCount * headDim];
    this.#int64s('qkv_widths', [queryWidth, keyWidth, keyWidth]);
    this.#int64s('heads_apart', [-1, headDim]);
    this.#int64s('queries_together', [-1, queryWidth]);
    this.#int64s('keys_together', [-1, keyWidth]);
  }

  /** Also writes the new keys and values. */
  #attention(layer: number): void {
    const graph = this.#graph;
    const { headCount, kvHeadCount, headDim } = this.#shape;
    const outputs = [`present_k${layer}`, `present_v${layer}`];
    if (this.hasAttentionKernel) {
      graph.kernelNode(
        this.#kvType === 'f16' ? 'RowAttentionHalf' : 'RowAttention',
        [`qkv${layer}`, `past_k${layer}`, `past_v${layer}`, 'seqlens_k', 'cos', 'sin'],
        [`heads${layer}`, ...outputs],
        { heads: { int: headCount }, kv_heads: { int: kvHeadCount }, head_dim: { int: headDim } },
      );
      return;
    }
    graph.node('Reshape', [`qkv${layer}`, 'three_d'], [`qkv3_${layer}`]);
    graph.microsoftNode(
      'GroupQueryAttention',
      [`qkv3_${layer}`, '', '', `past_k${layer}`, `past_v${layer}`, 'seqlens_k', 'total', 'cos', 'sin'],
      [`heads3_${layer}`, ...outputs],
      {
        num_heads: { int: headCount },
        kv_num_heads: { int: kvHeadCount },
        do_rotary: { int: 1 },
        scale: { float: headDim ** -0.5 },
      },
    );
    graph.node('Reshape', [`heads3_${layer}`, 'rows_by_heads'], [`heads${layer}`]);
  }

  /** What onnxruntime's attention needs its values in: [batch, tokens, width], where all others are flat. */
  #attentionShapes(): void {
    this.#int64s('rows_by_heads', [-1, this.#shape.headCount * this.#shape.headDim]);
    this.#graph.node('Shape', ['input_ids'], ['batch_tokens']);
    this.#graph.node('Concat', ['batch_tokens', 'flat'], ['three_d'], { axis: { int: 0 } });
  }

  /** The bounds are those of kernels/attention.c. */
  get hasAttentionKernel(): boolean {
    const { headCount, kvHeadCount, headDim } = this.#shape;
    return this.#kernels === 'tiled' && headDim <= 256 && headCount / kvHeadCount <= 48;
  }

  #normalize(x: string, norm: string, y: string): void {
    this.#graph.node('SimplifiedLayerNormalization', [x, norm], [y], {
      axis: { int: -1 },
      epsilon: { float: this.#shape.normEpsilon },
      stash_type: { int: 1 },
    });
  }

  #addAndNormalize(terms: readonly [string, string], norm: string, out: { normal: string; sum: string }): void {
    const outputs = out.sum === '' ? [out.normal] : [out.normal, '', '', out.sum];
    this.#graph.microsoftNode('SkipSimplifiedLayerNormalization', [...terms, this.#weights.vector(norm)], outputs, {
      epsilon: { float: this.#shape.normEpsilon },
    });
  }

  /** silu(gate(x)) * up(x), in one product where the kernels can. */
  #gated(x: string, parts: readonly [MatrixPart, MatrixPart], layer: number): void {
    const forms = parts.map(part => this.#weights.formOf(part));
    if (forms[0]!.kind === 'tiles' && isSameForm(forms[0]!, forms[1]!)) {
      this.#tiledProduct(x, this.#weights.matrix(parts, 'layer', 'in-turn'), { name: `gated${layer}`, y: `gated${layer}`, isGated: true });
      return;
    }
    this.#gateAndUp(x, parts, [`g${layer}`, `u${layer}`]);
    // x * sigmoid(x) is QuickGelu with alpha 1.
    this.#graph.microsoftNode('QuickGelu', [`g${layer}`], [`s${layer}`], { alpha: { float: 1 } });
    this.#graph.node('Mul', [`s${layer}`, `u${layer}`], [`gated${layer}`]);
  }

  /** One product where both have the same form, else two. */
  #gateAndUp(x: string, parts: readonly [MatrixPart, MatrixPart], [gate, up]: readonly [string, string]): void {
    if (isSameForm(this.#weights.formOf(parts[0]), this.#weights.formOf(parts[1]))) {
      this.#concatenated(x, parts, `${gate}${up}`);
      this.#graph.node('Split', [`${gate}${up}`], [gate, up], { axis: { int: -1 }, num_outputs: { int: 2 } });
    } else {
      this.#concatenated(x, [parts[0]], gate);
      this.#concatenated(x, [parts[1]], up);
    }
  }

  /** x times each part, side by side; neighbours of one form become one product. */
  #concatenated(x: string, parts: readonly MatrixPart[], y: string): void {
    const runs: MatrixPart[][] = [];
    for (const part of parts) {
      const run = runs.at(-1);
      if (run !== undefined && isSameForm(this.#weights.formOf(run[0]!), this.#weights.formOf(part))) run.push(part);
      else runs.push([part]);
    }
    if (runs.length === 1) {
      this.#product(x, this.#weights.matrix(parts), y, y);
      return;
    }
    const pieces = runs.map((run, i) => {
      const piece = `${y}.${i}`;
      this.#product(x, this.#weights.matrix(run), piece, piece);
      return piece;
    });
    this.#graph.node('Concat', pieces, [y], { axis: { int: -1 } });
  }

  /** y = x · matrixᵀ; `name` prefixes the weights. */
  #product(x: string, matrix: StoredMatrix, name: string, y: string): void {
    const graph = this.#graph;
    if (matrix.kind === 'dense') {
      const floats = graph.weight(`${name}.w`, 'float', [matrix.rows, matrix.columns], matrix.floats);
      graph.node('Gemm', [x, floats], [y], { transB: { int: 1 } });
      return;
    }
    if (matrix.kind === 'tiles') {
      this.#tiledProduct(x, matrix, { name, y, isGated: false });
      return;
    }
    const { rows, columns, bits, blockElements, blocksPerRow, offsets } = matrix;
    const quants = graph.weight(`${name}.q`, 'uint8', [rows, blocksPerRow, (blockElements * bits) / 8], matrix.quants);
    const scales = graph.weight(`${name}.d`, 'float', [rows * blocksPerRow], matrix.scales);
    const product = offsets === undefined ? y : `${y}.scaled`;
    graph.microsoftNode('MatMulNBits', [x, quants, scales], [product], {
      K: { int: columns },
      N: { int: rows },
      bits: { int: bits },
      block_size: { int: blockElements },
      accuracy_level: { int: ACCURACY_LEVEL },
    });
    if (offsets === undefined) return;
    const weight = graph.weight(`${name}.m`, 'float', [rows, blocksPerRow], offsets);
    graph.node('Gemm', [this.#blockSums(x, columns), weight, product], [y], { transB: { int: 1 } });
  }

  #tiledProduct(x: string, matrix: StoredMatrix, { name, y, isGated }: { name: string; y: string; isGated: boolean }): void {
    this.#graph.kernelNode('TiledMatMul', [x, this.#tiles(name, matrix)], [y], tileAttributes(matrix, isGated));
  }

  #tiles(name: string, matrix: StoredMatrix): string {
    if (matrix.kind !== 'tiles') throw new Error(`${name} is not stored in tiles`);
    return this.#graph.weight(`${name}.t`, 'uint8', [matrix.tiles.byteLength], matrix.tiles);
  }

  /** Rows of the embedding, read straight from its stored form. */
  #embed(matrix: StoredMatrix, ids: string, y: string): void {
    const graph = this.#graph;
    const { rows, columns } = matrix;
    if (matrix.kind === 'dense') {
      graph.node('Gather', [graph.weight('embedding.w', 'float', [rows, columns], matrix.floats), ids], [y]);
      return;
    }
    if (matrix.kind === 'tiles') {
      graph.kernelNode('TiledGather', [ids, this.#tiles('embedding', matrix)], [y], tileAttributes(matrix, false));
      return;
    }
    const { bits, blockElements, blocksPerRow, offsets } = matrix;
    const quants = graph.weight('embedding.q', 'uint8', [rows, (columns * bits) / 8], matrix.quants);
    const scales = graph.weight('embedding.d', 'float', [rows, blocksPerRow], matrix.scales);
    const scaled = offsets === undefined ? y : `${y}.scaled`;
    graph.microsoftNode('GatherBlockQuantized', [quants, ids, scales], [scaled], {
      bits: { int: bits },
      block_size: { int: blockElements },
      gather_axis: { int: 0 },
      quantize_axis: { int: 1 },
    });
    if (offsets === undefined) return;
    const weight = graph.weight('embedding.m', 'float', [rows, blocksPerRow], offsets);
    graph.node('Gather', [weight, ids], [`${y}.offsets`]);
    graph.node('Gemm', [`${y}.offsets`, this.#weights.blockSumMatrix(columns), scaled], [y], { transB: { int: 1 } });
  }

  #blockSums(x: string, columns: number): string {
    const sums = `${x}.sums`;
    if (!this.#summed.has(x)) {
      this.#summed.add(x);
      this.#graph.node('MatMul', [x, this.#weights.blockSumMatrix(columns)], [sums]);
    }
    return sums;
  }

  #rotaryTables(): void {
    const { contextTokens, headDim, ropeBase, ropeDivisor } = this.#shape;
    const pairs = headDim / 2;
    const frequencies = Float64Array.from({ length: pairs }, (_, pair) => {
      const divisor = ropeDivisor * (this.#ropeFactors?.[pair] ?? 1);
      return ropeBase ** ((-2 * pair) / headDim) / divisor;
    });
    for (const [name, wave] of [
      ['cos', Math.cos],
      ['sin', Math.sin],
    ] as const) {
      this.#weights.table(name, [contextTokens, pairs], (position, row) => {
        for (let pair = 0; pair < pairs; pair++) row[pair] = wave(position * frequencies[pair]!);
      });
    }
  }

  #int64s(name: string, values: readonly number[]): void {
    this.#graph.constant(name, 'int64', [values.length], new Uint8Array(BigInt64Array.from(values, BigInt).buffer));
  }
}

function tileAttributes(matrix: StoredMatrix, isGated: boolean): Record<string, Attribute> {
  if (matrix.kind !== 'tiles') throw new Error('the matrix is not stored in tiles');
  return {
    rows: { int: matrix.rows },
    columns: { int: matrix.columns },
    bits: { int: matrix.bits },
    block: { int: matrix.blockElements },
    half_scales: { int: matrix.isHalf ? 1 : 0 },
    gated: { int: isGated ? 1 : 0 },
  };
}
