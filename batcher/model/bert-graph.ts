/**
 * BertGraph: the BERT encoder as an ONNX graph, over the weights of one safetensors file, without padding but where attention needs it; and
 * there the texts are in groups of like length, so that there is little.
 *
 * Inputs: ids and positions int64 [tokens], the texts of a batch one behind the other; for each group g unpack{g} int64 [texts, longest],
 * where in `ids` each place of each text lies (0 behind its end), and mask{g} int32 [texts, longest], 1 up to its end, each with one text at
 * the least; pack int64 [tokens], the way back: the place among those of all groups, one behind the other; pool float32 [texts, tokens],
 * the share of each token in each text's vector. Output: vectors float32 [texts, width].
 *
 *   tokens ──project──▶ ──unpack──▶ groups ──attention──▶ ──pack──▶ tokens ──project, add, normalize──▶ … ──pool──▶ vectors
 */
import type { EncoderShape } from './encoder-folder.ts';
import type { WeightSink } from './graph-weights.ts';
import { OnnxGraph, type Region } from './onnx-graph.ts';
import type { SafeTensor, SafetensorsFile } from './safetensors-file.ts';
import { Scratch } from './scratch.ts';

/** Groups of texts in attention. More would make little less padding. */
export const ATTENTION_GROUPS = 4;

export interface BertGraph {
  graph: OnnxGraph;
  write(sink: WeightSink, onProgress: (doneBytes: number, totalBytes: number) => void): Promise<void>;
}

/** Elements of one chunk. */
const CHUNK_ELEMENTS = 1 << 18;
const FLOAT_BYTES = 4;
/** As sentence-transformers has it. */
const NORMALIZED_AXIS = 1;

/** The finished graph; its weights are declared and still to be written. Throws a ModelError for a tensor that is missing. */
export function buildBertGraph(file: SafetensorsFile, shape: EncoderShape, dataFileName: string): BertGraph {
  const graph = new OnnxGraph(dataFileName);
  const builder = new BertBuilder(graph, file, shape);
  builder.build();
  return { graph, write: (sink, onProgress) => builder.write(sink, onProgress) };
}

const GROUPS = Array.from({ length: ATTENTION_GROUPS }, (_, group) => group);

interface Task {
  elementCount: number;
  run(sink: WeightSink): Promise<void>;
}

class BertBuilder {
  readonly #graph: OnnxGraph;
  readonly #file: SafetensorsFile;
  readonly #shape: EncoderShape;
  readonly #prefix: string;
  readonly #tasks: Task[] = [];
  readonly #scratch = new Scratch();

  constructor(graph: OnnxGraph, file: SafetensorsFile, shape: EncoderShape) {
    this.#graph = graph;
    this.#file = file;
    this.#shape = shape;
    // Models that were trained with a head have the encoder's tensors under its name.
    this.#prefix = file.tensors.has('bert.embeddings.word_embeddings.weight') ? 'bert.' : '';
  }

  build(): void {
    const graph = this.#graph;
    const { layerCount, width, vocabSize, isNormalized } = this.#shape;
    graph.input({ name: 'ids', type: 'int64', dimensions: ['tokens'] });
    graph.input({ name: 'positions', type: 'int64', dimensions: ['tokens'] });
    for (const group of GROUPS) {
      const dimensions = [`texts${group}`, `longest${group}`];
      graph.input({ name: `unpack${group}`, type: 'int64', dimensions });
      graph.input({ name: `mask${group}`, type: 'int32', dimensions });
    }
    graph.input({ name: 'pack', type: 'int64', dimensions: ['tokens'] });
    graph.input({ name: 'pool', type: 'float', dimensions: ['texts', 'tokens'] });
    graph.output({ name: 'vectors', type: 'float', dimensions: ['texts', width] });
    graph.constant('rows', 'int64', [2], new Uint8Array(BigInt64Array.of(-1n, BigInt(width)).buffer));

    graph.node('Gather', [this.#matrix('embeddings.word_embeddings.weight', vocabSize, width), 'ids'], ['words']);
    graph.node('Gather', [this.#placeEmbeddings(), 'positions'], ['places']);
    this.#addAndNormalize(['words', 'places'], 'embeddings.LayerNorm', 'x0');
    for (let layer = 0; layer < layerCount; layer++) this.#layer(layer);
    const pooled = isNormalized ? 'pooled' : 'vectors';
    graph.node('MatMul', ['pool', `x${layerCount}`], [pooled]);
    if (isNormalized) graph.node('LpNormalization', [pooled], ['vectors'], { axis: { int: NORMALIZED_AXIS }, p: { int: 2 } });
  }

  async write(sink: WeightSink, onProgress: (doneBytes: number, totalBytes: number) => void): Promise<void> {
    const total = this.#tasks.reduce((sum, task) => sum + task.elementCount, 0);
    let done = 0;
    for (const task of this.#tasks) {
      await task.run(sink);
      done += task.elementCount;
      onProgress(done * FLOAT_BYTES, total * FLOAT_BYTES);
    }
  }

  #layer(layer: number): void {
    const graph = this.#graph;
    const { width, headCount, feedForwardWidth } = this.#shape;
    const name = `encoder.layer.${layer}`;
    const sides = ['query', 'key', 'value'].map(side => `${name}.attention.self.${side}`);
    this.#project(`x${layer}`, { names: sides, from: width, to: width }, `qkv${layer}`);
    const seen = GROUPS.map(group => {
      const at = `${layer}_${group}`;
      graph.node('Gather', [`qkv${layer}`, `unpack${group}`], [`wide${at}`]);
      graph.node('Split', [`wide${at}`], [`q${at}`, `k${at}`, `v${at}`], { axis: { int: -1 }, num_outputs: { int: 3 } });
      graph.microsoftNode('MultiHeadAttention', [`q${at}`, `k${at}`, `v${at}`, '', `mask${group}`], [`seen3_${at}`], {
        num_heads: { int: headCount },
      });
      graph.node('Reshape', [`seen3_${at}`, 'rows'], [`seen${at}`]);
      return `seen${at}`;
    });
    graph.node('Concat', seen, [`seen${layer}`], { axis: { int: 0 } });
    graph.node('Gather', [`seen${layer}`, 'pack'], [`heads${layer}`]);
    this.#project(`heads${layer}`, { names: [`${name}.attention.output.dense`], from: width, to: width }, `o${layer}`);
    this.#addAndNormalize([`x${layer}`, `o${layer}`], `${name}.attention.output.LayerNorm`, `a${layer}`);
    this.#project(`a${layer}`, { names: [`${name}.intermediate.dense`], from: width, to: feedForwardWidth }, `f${layer}`);
    graph.microsoftNode('Gelu', [`f${layer}`], [`g${layer}`], {});
    this.#project(`g${layer}`, { names: [`${name}.output.dense`], from: feedForwardWidth, to: width }, `d${layer}`);
    this.#addAndNormalize([`a${layer}`, `d${layer}`], `${name}.output.LayerNorm`, `x${layer + 1}`);
  }

  /** y = x · Wᵀ + b, of several matrices side by side. */
  #project(x: string, { names, from, to }: { names: readonly string[]; from: number; to: number }, y: string): void {
    const weight = this.#stacked(
      `${y}.w`,
      names.map(name => `${name}.weight`),
      [to, from],
    );
    const bias = this.#stacked(
      `${y}.b`,
      names.map(name => `${name}.bias`),
      [to],
    );
    this.#graph.node('Gemm', [x, weight, bias], [y], { transB: { int: 1 } });
  }

  #addAndNormalize(terms: readonly [string, string], norm: string, y: string): void {
    const { width, normEpsilon } = this.#shape;
    const weights = ['weight', 'bias'].map(part => this.#stacked(`${norm}.${part}`, [`${norm}.${part}`], [width]));
    this.#graph.microsoftNode('SkipLayerNormalization', [...terms, ...weights], [y], { epsilon: { float: normEpsilon } });
  }

  #matrix(name: string, rows: number, columns: number): string {
    return this.#stacked(name, [name], [rows, columns]);
  }

  /** Tensors of one shape, one below the other. */
  #stacked(weightName: string, names: readonly string[], [rows, ...rest]: readonly [number, ...number[]]): string {
    const tensors = names.map(name => this.#file.require(this.#prefix + name, [rows, ...rest]));
    const elementCount = rest.reduce((product, dimension) => product * dimension, rows);
    const region = this.#graph.region('float', elementCount * tensors.length);
    for (const [index, tensor] of tensors.entries()) {
      this.#tasks.push({ elementCount, run: sink => this.#copy(tensor, region, index * elementCount, sink) });
    }
    return this.#graph.weight(weightName, 'float', [rows * tensors.length, ...rest], region);
  }

  /** A text is all of one type, so its vector is part of each place's. */
  #placeEmbeddings(): string {
    const { positionCount, width } = this.#shape;
    const places = this.#file.require(`${this.#prefix}embeddings.position_embeddings.weight`, [positionCount, width]);
    const typesName = `${this.#prefix}embeddings.token_type_embeddings.weight`;
    const types = this.#file.tensors.get(typesName);
    const typeCount = types?.dimensions[0] ?? 1;
    if (types !== undefined) this.#file.require(typesName, [typeCount, width]);
    const region = this.#graph.region('float', positionCount * width);
    this.#tasks.push({
      elementCount: positionCount * width,
      run: async sink => {
        const type = types === undefined ? new Float32Array(width) : (await this.#file.floats(types, 0, width, this.#scratch)).slice();
        const sum = (await this.#file.floats(places, 0, positionCount * width, this.#scratch)).map(
          (value, at) => value + type[at % width]!,
        );
        await sink.write(region.offset, bytesOf(sum));
      },
    });
    return this.#graph.weight('places.w', 'float', [positionCount, width], region);
  }

  async #copy(tensor: SafeTensor, region: Region, firstElement: number, sink: WeightSink): Promise<void> {
    for (let at = 0; at < tensor.elementCount; at += CHUNK_ELEMENTS) {
      const count = Math.min(CHUNK_ELEMENTS, tensor.elementCount - at);
      const floats = await this.#file.floats(tensor, at, count, this.#scratch);
      await sink.write(region.offset + (firstElement + at) * FLOAT_BYTES, bytesOf(floats));
    }
  }
}

function bytesOf(floats: Float32Array): Uint8Array {
  return new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength);
}
