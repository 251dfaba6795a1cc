/** PrepareEncoder: an embedding model's folder becomes one of the cache that computes what it should; what is not supported is named. */
import { readdir, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { OrtEncoder } from '../../../batcher/encoder/ort-encoder.ts';
import { isEncoderFolder } from '../../../batcher/model/encoder-folder.ts';
import { openPrepared } from '../../../batcher/model/prepare.ts';
import { loadEncoderVocabulary, openEncoder, type PreparedEncoder, prepareEncoder } from '../../../batcher/model/prepare-encoder.ts';
import { WordPiece } from '../../../batcher/model/word-piece.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { type TinyEncoderOptions, tinyEncoder } from './tiny-encoder.ts';

const TEXTS = [
  [2, 5, 3],
  [2, 5, 6, 7, 8, 9, 10, 11, 12, 3],
  [2, 3],
  [2, 20, 21, 6, 3],
];

async function prepared(options: TinyEncoderOptions = {}) {
  const tiny = await tinyEncoder(options);
  const cacheRoot = await temporaryFolder();
  return { tiny, cacheRoot, model: await prepareEncoder(tiny.folder, { cacheRoot }) };
}

async function vectorsOf({ graphPath, manifest }: PreparedEncoder, texts: number[][]): Promise<number[][]> {
  const { width, vocabSize, contextTokens, pooling } = manifest.shape;
  const engine = new OrtEncoder({ graphPath, pooling, shape: { width, vocabSize, contextTokens }, threads: 1, spinning: false });
  try {
    const all = await engine.embed(texts);
    return texts.map((_, index) => [...all.slice(index * width, (index + 1) * width)]);
  } finally {
    engine.close();
  }
}

function expectClose(got: readonly number[][], wanted: readonly number[][]): void {
  for (const [index, vector] of got.entries()) {
    for (const [i, value] of vector.entries()) expect(value, `number ${i} of text ${index}`).toBeCloseTo(wanted[index]![i]!, 5);
  }
}

describe('the graph computes what the model is', () => {
  test.each<[string, TinyEncoderOptions]>([
    ['mean, normalized', {}],
    ['the first token', { pooling: 'first' }],
    ['not normalized', { isNormalized: false }],
    ['tensors under a name', { prefix: 'bert.' }],
    ['half precision', { type: 'F16' }],
    ['bfloat16', { type: 'BF16' }],
  ])('%s', async (_name, options) => {
    const { tiny, model } = await prepared(options);
    expectClose(
      await vectorsOf(model, TEXTS),
      TEXTS.map(text => tiny.vector(text)),
    );
  });

  test('a text alone is what it is beside others', async () => {
    const { model } = await prepared();
    const alone = await Promise.all(TEXTS.map(async text => (await vectorsOf(model, [text]))[0]!));
    expectClose(await vectorsOf(model, TEXTS), alone);
    expectClose(await vectorsOf(model, TEXTS.toReversed()), alone.toReversed());
  });
});

test('its name, its bound and its vocabulary', async () => {
  const { tiny, model } = await prepared();
  expect(model.manifest).toMatchObject({ kind: 'encoder', name: 'tiny-encoder', shape: { contextTokens: 10, positionCount: 12 } });
  expect(new WordPiece(await loadEncoderVocabulary(model.directory)).encode('The car!')).toEqual([2, 21, 22, 19, 3]);
  expect(await isEncoderFolder(tiny.folder)).toBe(true);
  expect(await isEncoderFolder(model.directory)).toBe(false);
});

test('what is there is used; what is damaged is built anew; neither kind is taken for the other', async () => {
  const { tiny, cacheRoot, model } = await prepared();
  const said: string[] = [];
  const again = () => prepareEncoder(tiny.folder, { cacheRoot, onRebuild: reason => said.push(reason) });
  expect(await again()).toEqual(model);
  expect(said).toEqual([]);
  await truncate(join(model.directory, 'model.onnx.data'), 100);
  await expect(openEncoder(model.directory)).rejects.toThrow(/prepare the model again/);
  expect((await again()).directory).toBe(model.directory);
  expect(said).toEqual([expect.stringContaining('model.onnx.data has 100 bytes')]);
  expect(await vectorsOf(model, [TEXTS[0]!])).toHaveLength(1);
  await expect(openPrepared(model.directory)).rejects.toThrow('generates no text');
  await expect(openEncoder(await temporaryFolder())).rejects.toThrow();
  expect((await readdir(join(cacheRoot, 'models'))).filter(name => name.startsWith('.draft'))).toEqual([]);
});

test('another content is another model', async () => {
  const { tiny, cacheRoot, model } = await prepared();
  await writeFile(join(tiny.folder, 'sentence_bert_config.json'), '{"max_seq_length": 8}');
  const other = await prepareEncoder(tiny.folder, { cacheRoot });
  expect(other.directory).not.toBe(model.directory);
  expect(other.manifest.shape.contextTokens).toBe(8);
});

describe('what is not as it should be is one line', () => {
  test.each<[name: string, content: object | string | undefined, line: RegExp]>([
    ['config.json', undefined, /there is no config\.json/],
    ['config.json', '{', /config\.json: is no JSON/],
    ['config.json', { model_type: 'roberta' }, /config\.json: model_type/],
    ['1_Pooling/config.json', { pooling_mode_max_tokens: true }, /1_Pooling.*pooling_mode_max_tokens/],
    ['1_Pooling/config.json', {}, /exactly one of the mean/],
    ['modules.json', [{ type: 'sentence_transformers.models.Dense' }], /module Dense/],
    ['tokenizer.json', { model: { type: 'BPE' } }, /tokenizer\.json: /],
    ['model.safetensors', '', /model\.safetensors: .*no header/],
    ['model.safetensors', `\xff\xff\xff\xff\x00\x00\x00\x00{}`, /header is longer than the file/],
    ['model.safetensors', `\x02\x00\x00\x00\x00\x00\x00\x00{]`, /no JSON/],
    ['model.safetensors', `\x02\x00\x00\x00\x00\x00\x00\x00{}`, /no tensor embeddings\.word_embeddings\.weight/],
  ])('%s: %j', async (name, content, line) => {
    const bytes = name === 'model.safetensors' ? (Buffer.from(content as string, 'latin1') as unknown as string) : content;
    const { folder } = await tinyEncoder({ files: { [name]: bytes } });
    const failure = prepareEncoder(folder, { cacheRoot: await temporaryFolder() });
    await expect(failure).rejects.toThrow(line);
    await expect(failure).rejects.toMatchObject({ name: 'ModelError', message: expect.not.stringContaining('\n') });
  });
});
