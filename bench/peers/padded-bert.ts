/**
 * PaddedBert: an embedding model's folder as other runtimes want it: one ONNX graph over padded batches (input_ids, attention_mask,
 * token_type_ids to last_hidden_state), with onnxruntime's own operators where an optimizer would put them, beside the tokenizer's files.
 */
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type EncoderShape, readEncoderShape, WEIGHTS_FILE } from '../../batcher/model/encoder-folder.ts';
import { OnnxGraph } from '../../batcher/model/onnx-graph.ts';
import { SafetensorsFile } from '../../batcher/model/safetensors-file.ts';
import { Scratch } from '../../batcher/model/scratch.ts';
import { WeightFile } from '../../batcher/model/weight-file.ts';

const GRAPH_FILE = 'model.onnx';
const DATA_FILE = 'model.onnx_data';
const EPSILON = 1e-12;
const TOKENIZER_CONFIG = {
  ...{ tokenizer_class: 'BertTokenizer', model_max_length: 512 },
  ...{ unk_token: '[UNK]', sep_token: '[SEP]', pad_token: '[PAD]', cls_token: '[CLS]', mask_token: '[MASK]' },
};

type Writes = { tensorName: string; offset: number; elementCount: number }[];

/** `folder` is the published one, `target` is made. */
export async function writePaddedBert(folder: string, target: string): Promise<void> {
  const shape = await readEncoderShape(folder);
  await mkdir(join(target, 'onnx'), { recursive: true });
  for (const name of ['config.json', 'tokenizer.json']) await copyFile(join(folder, name), join(target, name));
  await writeFile(join(target, 'tokenizer_config.json'), JSON.stringify(TOKENIZER_CONFIG));
  await using file = await SafetensorsFile.open(join(folder, WEIGHTS_FILE));
  const { graph, writes } = paddedGraph(file, shape);
  await writeFile(join(target, 'onnx', GRAPH_FILE), graph.encode('bert'));
  await using data = await WeightFile.create(join(target, 'onnx', DATA_FILE), graph.dataBytes);
  for (const { tensorName, offset, elementCount } of writes) {
    const floats = await file.floats(file.tensors.get(tensorName)!, 0, elementCount, new Scratch());
    await data.write(offset, new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength));
  }
  await data.finish();
}

function paddedGraph(file: SafetensorsFile, shape: EncoderShape): { graph: OnnxGraph; writes: Writes } {
  const graph = new OnnxGraph(DATA_FILE);
  const writes: Writes = [];
  const { width, headCount, layerCount } = shape;
  const weight = (tensorName: string): string => {
    const { dimensions, elementCount } = file.tensors.get(tensorName)!;
    const region = graph.region('float', elementCount);
    writes.push({ tensorName, offset: region.offset, elementCount });
    return graph.weight(tensorName, 'float', dimensions, region);
  };
  const int64s = (name: string, values: bigint[], dimensions = [values.length]) =>
    graph.constant(name, 'int64', dimensions, new Uint8Array(BigInt64Array.from(values).buffer));
  const dense = (x: string, name: string, y: string) =>
    graph.node('Gemm', [x, weight(`${name}.weight`), weight(`${name}.bias`)], [y], { transB: { int: 1 } });
  const norm = (terms: [string, string], name: string, y: string) =>
    graph.microsoftNode('SkipLayerNormalization', [...terms, weight(`${name}.weight`), weight(`${name}.bias`)], [y], {
      epsilon: { float: EPSILON },
    });

  for (const name of ['input_ids', 'attention_mask', 'token_type_ids']) {
    graph.input({ name, type: 'int64', dimensions: ['batch', 'tokens'] });
  }
  graph.output({ name: 'last_hidden_state', type: 'float', dimensions: ['batch', 'tokens', width] });
  int64s('flat', [-1n, BigInt(width)]);
  int64s('wide', [BigInt(width)]);
  int64s('one', [1n]);
  int64s('zero_s', [0n], []);
  int64s('one_s', [1n], []);
  graph.node('Shape', ['input_ids'], ['shape2']);
  graph.node('Concat', ['shape2', 'wide'], ['shape3'], { axis: { int: 0 } });
  graph.node('Gather', ['shape2', 'one_s'], ['count']);
  graph.node('Range', ['zero_s', 'count', 'one_s'], ['positions']);
  graph.node('Cast', ['attention_mask'], ['mask'], { to: { int: 6 } });
  graph.node('Gather', [weight('embeddings.word_embeddings.weight'), 'input_ids'], ['words']);
  graph.node('Gather', [weight('embeddings.position_embeddings.weight'), 'positions'], ['places']);
  graph.node('Gather', [weight('embeddings.token_type_embeddings.weight'), 'token_type_ids'], ['types']);
  graph.node('Add', ['words', 'places'], ['words_places']);
  graph.node('Add', ['words_places', 'types'], ['embedded']);
  graph.node('LayerNormalization', ['embedded', weight('embeddings.LayerNorm.weight'), weight('embeddings.LayerNorm.bias')], ['x0_3'], {
    axis: { int: -1 },
    epsilon: { float: EPSILON },
  });
  graph.node('Reshape', ['x0_3', 'flat'], ['x0']);
  for (let layer = 0; layer < layerCount; layer++) {
    const at = `encoder.layer.${layer}`;
    for (const [side, short] of Object.entries({ query: 'q', key: 'k', value: 'v' })) {
      dense(`x${layer}`, `${at}.attention.self.${side}`, `${short}${layer}`);
      graph.node('Reshape', [`${short}${layer}`, 'shape3'], [`${short}3_${layer}`]);
    }
    graph.microsoftNode('MultiHeadAttention', [`q3_${layer}`, `k3_${layer}`, `v3_${layer}`, '', 'mask'], [`seen3_${layer}`], {
      num_heads: { int: headCount },
    });
    graph.node('Reshape', [`seen3_${layer}`, 'flat'], [`seen${layer}`]);
    dense(`seen${layer}`, `${at}.attention.output.dense`, `o${layer}`);
    norm([`x${layer}`, `o${layer}`], `${at}.attention.output.LayerNorm`, `a${layer}`);
    dense(`a${layer}`, `${at}.intermediate.dense`, `f${layer}`);
    graph.microsoftNode('Gelu', [`f${layer}`], [`g${layer}`], {});
    dense(`g${layer}`, `${at}.output.dense`, `d${layer}`);
    norm([`a${layer}`, `d${layer}`], `${at}.output.LayerNorm`, `x${layer + 1}`);
  }
  graph.node('Reshape', [`x${layerCount}`, 'shape3'], ['last_hidden_state']);
  return { graph, writes };
}
