/**
 * PrepareEncoder: an embedding model's folder becomes a folder of the cache: the ONNX graph, its data file, the vocabulary and a manifest.
 * What is there and intact is used at once; what is missing or damaged is built anew.
 */
import { createHash } from 'node:crypto';
import { rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { writeDurably } from './atomic-file.ts';
import { buildBertGraph } from './bert-graph.ts';
import { defaultCacheRoot } from './cache-root.ts';
import { encoderNameOf, OPTIONAL_FILES, REQUIRED_FILES, readEncoderShape, TOKENIZER_FILE, WEIGHTS_FILE } from './encoder-folder.ts';
import { type EncoderVocabulary, readEncoderVocabulary } from './encoder-vocabulary.ts';
import { checkPrepared, describeFile, type EncoderManifest, isEncoder, MANIFEST_VERSION, writeManifest } from './manifest.ts';
import { ModelError } from './model-error.ts';
import type { PrepareOptions } from './prepare.ts';
import { createDraft, publishDraft, readVocabularyFile, VOCABULARY_FILE } from './prepared-folder.ts';
import { SafetensorsFile } from './safetensors-file.ts';
import { computeDigest, knownDigest } from './source-digest.ts';
import { WeightFile } from './weight-file.ts';

export interface PreparedEncoder {
  directory: string;
  graphPath: string;
  name: string;
  manifest: EncoderManifest;
}

const GRAPH_FILE = 'model.onnx';
const DATA_FILE = 'model.onnx.data';
/** Raise it whenever graph, data or vocabulary change: older folders are then built anew. */
const LAYOUT = 1;

/** Throws a ModelError of one line for everything that is wrong with the folder or the cache. */
export async function prepareEncoder(folder: string, options: Omit<PrepareOptions, 'weights'> = {}): Promise<PreparedEncoder> {
  const path = resolve(folder);
  const cacheRoot = options.cacheRoot ?? defaultCacheRoot();
  try {
    const sha256 = await digestOf(path, cacheRoot, options);
    const directory = directoryOf({ path, sha256, cacheRoot });
    const check = await checkPrepared(directory, { thorough: options.verify ?? false });
    if (check.state === 'intact') return await openEncoder(directory);
    if (check.state === 'damaged') options.onRebuild?.(`${directory}: ${check.reason}; it is built anew.`);
    const modelsRoot = join(cacheRoot, 'models');
    const draft = await createDraft(modelsRoot);
    try {
      await fillDraft(draft, { path, sha256 }, options);
      await publishDraft(draft, modelsRoot, directory);
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
    return await openEncoder(directory);
  } catch (thrown) {
    if (thrown instanceof ModelError || !(thrown instanceof Error) || !('code' in thrown)) throw thrown;
    throw new ModelError(`${path}: could not be prepared (${thrown.message}).`, { cause: thrown });
  }
}

/** The prepared model in a folder. Throws ModelError when there is none, a damaged one, or one that makes no embeddings. */
export async function openEncoder(directory: string): Promise<PreparedEncoder> {
  const check = await checkPrepared(directory);
  if (check.state !== 'intact') {
    const reason = check.state === 'damaged' ? check.reason : 'there is no prepared model in it';
    throw new ModelError(`${directory}: ${reason}; prepare the model again.`);
  }
  const { manifest } = check;
  if (!isEncoder(manifest)) throw new ModelError(`${directory}: holds a model that makes no embeddings.`);
  return { directory, graphPath: join(directory, GRAPH_FILE), name: manifest.name, manifest };
}

/** Of a prepared folder. */
export async function loadEncoderVocabulary(directory: string): Promise<EncoderVocabulary> {
  return readVocabularyFile<EncoderVocabulary>(directory);
}

async function fillDraft(draft: string, { path, sha256 }: { path: string; sha256: string }, { onProgress }: PrepareOptions): Promise<void> {
  const shape = await readEncoderShape(path);
  const vocabulary = await readEncoderVocabulary(join(path, TOKENIZER_FILE), shape.vocabSize);
  await using file = await SafetensorsFile.open(join(path, WEIGHTS_FILE));
  const bert = buildBertGraph(file, shape, DATA_FILE);
  await writeDurably(join(draft, VOCABULARY_FILE), JSON.stringify(vocabulary));
  await writeDurably(join(draft, GRAPH_FILE), bert.graph.encode('bert'));
  const { dataBytes } = bert.graph;
  {
    await using data = await WeightFile.create(join(draft, DATA_FILE), dataBytes);
    await bert.write(data, (done, total) => onProgress?.(done, total, 'converting'));
    await data.finish();
  }
  const files = [];
  for (const name of [GRAPH_FILE, VOCABULARY_FILE, DATA_FILE]) {
    files.push(await describeFile(draft, name, done => name === DATA_FILE && onProgress?.(done, dataBytes, 'checking')));
  }
  const { size } = await stat(join(path, WEIGHTS_FILE));
  await writeManifest(draft, {
    version: MANIFEST_VERSION,
    kind: 'encoder',
    name: encoderNameOf(path),
    source: { fileName: WEIGHTS_FILE, byteLength: size, sha256 },
    shape,
    files,
  });
}

/** Of all files that are used; the large one is not read again while its size and time stay. */
async function digestOf(path: string, cacheRoot: string, { onProgress }: PrepareOptions): Promise<string> {
  const hash = createHash('sha256');
  for (const name of [...REQUIRED_FILES, ...OPTIONAL_FILES]) {
    const file = join(path, name);
    const found = await stat(file).catch(() => undefined);
    if (found === undefined && (REQUIRED_FILES as readonly string[]).includes(name)) throw new ModelError(`${path}: there is no ${name}.`);
    if (found === undefined) continue;
    const progress = (done: number, total: number) => onProgress?.(done, total, 'reading');
    const digest = (await knownDigest(file, cacheRoot)) ?? (await computeDigest(file, { cacheRoot, onProgress: progress }));
    hash.update(`${name} ${digest}\n`);
  }
  return hash.digest('hex');
}

function directoryOf({ path, sha256, cacheRoot }: { path: string; sha256: string; cacheRoot: string }): string {
  const name = encoderNameOf(path);
  const key = createHash('sha256')
    .update(JSON.stringify([MANIFEST_VERSION, LAYOUT, sha256, name]))
    .digest('hex')
    .slice(0, 16);
  return join(cacheRoot, 'models', `${name}-encoder-${key}`);
}
