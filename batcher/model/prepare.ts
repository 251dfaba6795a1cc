/**
 * Prepare: a GGUF file becomes a folder of the cache: the ONNX graph, its data file, the vocabulary and a manifest.
 * What is there and intact is used at once (no hashing, no reading of weights); what is missing or damaged is built anew.
 * Where the host can compile and run our own kernels, the folder has their library, and the weights lie in their order.
 */

import { createHash } from 'node:crypto';
import { rm, stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import type { KvType } from '../engine/engine.ts';
import { kernelDigest, whyNoKernels, writeKernels } from '../engine/kernels/kernel-library.ts';
import { writeDurably } from './atomic-file.ts';
import { defaultCacheRoot } from './cache-root.ts';
import { type GgufFile, openGguf } from './gguf-file.ts';
import { buildLlamaGraph } from './llama-graph.ts';
import { type LlamaShape, readLlamaShape } from './llama-shape.ts';
import { type AnyManifest, checkPrepared, describeFile, isEncoder, MANIFEST_VERSION, type Manifest, writeManifest } from './manifest.ts';
import type { FormChoice, Kernels, Quality, WeightsChoice } from './matrix-form.ts';
import { ModelError, reasonOf } from './model-error.ts';
import { modelNameOf } from './model-name.ts';
import { createDraft, publishDraft, readVocabularyFile, VOCABULARY_FILE } from './prepared-folder.ts';
import { computeDigest, knownDigest } from './source-digest.ts';
import { readVocabulary, type Vocabulary } from './vocabulary.ts';
import { WeightFile } from './weight-file.ts';

export interface PrepareOptions {
  weights?: WeightsChoice | undefined;
  /** Default: exact. */
  quality?: Quality | undefined;
  /** `stock` uses onnxruntime's own operators alone; default: our kernels where the host can have them. */
  kernels?: Kernels | undefined;
  /** Default: $XDG_CACHE_HOME/sluice or ~/.cache/sluice. */
  cacheRoot?: string | undefined;
  /** Reads every byte of an existing folder instead of trusting sizes and times. */
  verify?: boolean | undefined;
  /** Bytes done and to do of what the label names. */
  onProgress?: ((done: number, total: number, label: string) => void) | undefined;
  /** Told when an existing folder is not used, and why. */
  onRebuild?: ((reason: string) => void) | undefined;
}

export interface PreparedModel {
  directory: string;
  /** Library of the operators that the graph needs besides onnxruntime's. */
  kernelPath: string | undefined;
  name: string;
  manifest: Manifest;
}

const GRAPH_FILES: Record<KvType, string> = { f32: 'model.onnx', f16: 'model.kv16.onnx' };
/** The weights of all graphs of a prepared model. */
export const DATA_FILE = 'model.onnx.data';
const KERNEL_FILE = 'kernels.so';

/** Throws a ModelError of one line for everything that is wrong with the file or the cache. */
export async function prepareModel(ggufPath: string, options: PrepareOptions = {}): Promise<PreparedModel> {
  if (options.quality === 'fast' && options.weights !== undefined) {
    throw new ModelError(
      `--quality fast stores every matrix in 4 bits; --weights ${options.weights} does not go with it. Leave one of them away.`,
    );
  }
  const path = resolve(ggufPath);
  const cacheRoot = options.cacheRoot ?? defaultCacheRoot();
  try {
    const found = await findPrepared(path, cacheRoot, options);
    if (found !== undefined) return found;
    return await build(path, cacheRoot, options);
  } catch (thrown) {
    throw thrown instanceof ModelError ? thrown : asModelError(thrown, path);
  }
}

/** The vocabulary of a prepared folder. */
export async function loadVocabulary(directory: string): Promise<Vocabulary> {
  return readVocabularyFile<Vocabulary>(directory);
}

async function findPrepared(path: string, cacheRoot: string, options: PrepareOptions): Promise<PreparedModel | undefined> {
  await requireFile(path);
  const sha256 = await knownDigest(path, cacheRoot);
  if (sha256 === undefined) return undefined;
  return useExisting(directoryOf({ path, sha256, cacheRoot, ...choiceOf(options, wantedKernels(options)) }), options);
}

function choiceOf({ weights, quality }: PrepareOptions, kernels: Kernels): FormChoice {
  return { weights, quality: quality ?? 'exact', kernels };
}

function wantedKernels({ kernels }: PrepareOptions): Kernels {
  return kernels === 'stock' || whyNoKernels() !== undefined ? 'stock' : 'tiled';
}

async function build(path: string, cacheRoot: string, options: PrepareOptions): Promise<PreparedModel> {
  await using file = await openGguf(path);
  // Before the whole file is hashed: most unusable files are known by their header.
  const shape = readLlamaShape(file);
  const vocabulary = readVocabulary(file, shape.vocabSize);
  const onProgress = options.onProgress;
  const sha256 = await computeDigest(path, { cacheRoot, onProgress: (done, total) => onProgress?.(done, total, 'reading') });
  const directoryFor = (kernels: Kernels) => directoryOf({ path, sha256, cacheRoot, ...choiceOf(options, kernels) });
  const wanted = wantedKernels(options);
  const existing = await useExisting(directoryFor(wanted), options);
  if (existing !== undefined) return existing;

  const modelsRoot = join(cacheRoot, 'models');
  const draft = await createDraft(modelsRoot);
  let directory = directoryFor(wanted);
  try {
    const kernels = wanted === 'tiled' ? await addKernels(draft, options) : wanted;
    directory = directoryFor(kernels);
    if (kernels !== wanted) {
      const stock = await useExisting(directory, options);
      if (stock !== undefined) return stock;
    }
    await fillDraft(draft, { file, shape, vocabulary, sha256, choice: choiceOf(options, kernels) }, options);
    await publishDraft(draft, modelsRoot, directory);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  const check = await checkPrepared(directory);
  if (check.state !== 'intact') throw new ModelError(`${directory}: is ${check.state} right after it was written; is the disk in order?`);
  return preparedModel(directory, textManifest(directory, check.manifest));
}

/** The library into the draft; without a compiler the graph does with onnxruntime's operators, at some cost. */
async function addKernels(draft: string, { onRebuild }: PrepareOptions): Promise<Kernels> {
  try {
    // Apart from the cache of models: it belongs to the host.
    await writeKernels(join(draft, KERNEL_FILE), join(defaultCacheRoot(), 'kernels'));
    return 'tiled';
  } catch (thrown) {
    onRebuild?.(
      `The faster kernels could not be made (${reasonOf(thrown)}); the model runs on onnxruntime's own. Installing gcc mends it.`,
    );
    return 'stock';
  }
}

interface Source {
  file: GgufFile;
  shape: LlamaShape;
  vocabulary: Vocabulary;
  sha256: string;
  choice: FormChoice;
}

async function fillDraft(
  draft: string,
  { file, shape, vocabulary, sha256, choice }: Source,
  { onProgress }: PrepareOptions,
): Promise<void> {
  const { weights, quality, kernels } = choice;
  // First, while the heap is small; the weights then pass through in pieces.
  await writeDurably(join(draft, VOCABULARY_FILE), JSON.stringify(vocabulary));
  const llama = await buildLlamaGraph(file, shape, { ...choice, kvType: 'f32', dataFileName: DATA_FILE });
  await writeDurably(join(draft, GRAPH_FILES.f32), llama.graph.encode('llama'));
  const kvTypes: KvType[] = llama.hasAttentionKernel ? ['f32', 'f16'] : ['f32'];
  if (kvTypes.includes('f16')) {
    // The same weights at the same places.
    const half = await buildLlamaGraph(file, shape, { ...choice, kvType: 'f16', dataFileName: DATA_FILE });
    await writeDurably(join(draft, GRAPH_FILES.f16), half.graph.encode('llama'));
  }
  const { dataBytes } = llama.graph;
  {
    await using data = await WeightFile.create(join(draft, DATA_FILE), dataBytes);
    await llama.weights.write(data, (done, total) => onProgress?.(done, total, 'converting'));
    await data.finish();
  }
  const files = [];
  for (const name of [
    ...kvTypes.map(type => GRAPH_FILES[type]),
    VOCABULARY_FILE,
    DATA_FILE,
    ...(kernels === 'tiled' ? [KERNEL_FILE] : []),
  ]) {
    files.push(await describeFile(draft, name, done => name === DATA_FILE && onProgress?.(done, dataBytes, 'checking')));
  }
  await writeManifest(draft, {
    version: MANIFEST_VERSION,
    name: modelNameOf(file.path),
    source: { fileName: file.fileName, byteLength: file.byteLength, sha256 },
    weights: weights ?? 'import',
    quality,
    kernels,
    isBatchInvariant: llama.isBatchInvariant,
    kvTypes,
    forms: Object.fromEntries(llama.weights.formCounts),
    shape: {
      layers: shape.layerCount,
      heads: shape.headCount,
      kvHeads: shape.kvHeadCount,
      headDim: shape.headDim,
      width: shape.width,
      vocabSize: shape.vocabSize,
      contextTokens: shape.contextTokens,
    },
    endTokenIds: vocabulary.endTokenIds,
    ...(vocabulary.bosTokenId === undefined ? {} : { bosTokenId: vocabulary.bosTokenId }),
    addBos: vocabulary.addBos,
    files,
  });
}

async function useExisting(directory: string, { verify, onRebuild }: PrepareOptions): Promise<PreparedModel | undefined> {
  const check = await checkPrepared(directory, { thorough: verify ?? false });
  if (check.state === 'intact') return preparedModel(directory, textManifest(directory, check.manifest));
  if (check.state === 'damaged') onRebuild?.(`${directory}: ${check.reason}; it is built anew.`);
  return undefined;
}

/** Its graph for that KV cache. Throws ModelError where it has none. */
export function graphPathOf({ directory, manifest }: Pick<PreparedModel, 'directory' | 'manifest'>, kvType: KvType): string {
  if (!manifest.kvTypes.includes(kvType)) {
    throw new ModelError(`${directory}: a KV cache in ${kvType} needs the kernels that this model was prepared without; f32 works.`);
  }
  return join(directory, GRAPH_FILES[kvType]);
}

/** The KV cache that is used where nobody asks: half precision, where the kernels have it, holds twice the tokens. */
export function defaultKvType({ kvTypes }: Manifest): KvType {
  return kvTypes.includes('f16') ? 'f16' : 'f32';
}

/** The prepared model in a folder. Throws ModelError when there is none, or a damaged one. */
export async function openPrepared(directory: string): Promise<PreparedModel> {
  const check = await checkPrepared(directory);
  if (check.state === 'intact') return preparedModel(directory, textManifest(directory, check.manifest));
  const reason = check.state === 'damaged' ? check.reason : 'there is no prepared model in it';
  throw new ModelError(`${directory}: ${reason}; prepare the model again.`);
}

function textManifest(directory: string, manifest: AnyManifest): Manifest {
  if (isEncoder(manifest)) throw new ModelError(`${directory}: holds an embedding model, which generates no text.`);
  return manifest;
}

function preparedModel(directory: string, manifest: Manifest): PreparedModel {
  const kernelPath = manifest.kernels === 'tiled' ? join(directory, KERNEL_FILE) : undefined;
  return { directory, kernelPath, name: manifest.name, manifest };
}

/** Named by what goes in: source content, name, options, kernels, layout version. */
function directoryOf(parts: FormChoice & { path: string; sha256: string; cacheRoot: string }): string {
  const name = modelNameOf(parts.path);
  const weights = parts.quality === 'fast' ? 'fast' : (parts.weights ?? 'import');
  const kernels = parts.kernels === 'tiled' ? kernelDigest() : parts.kernels;
  const key = createHash('sha256')
    .update(JSON.stringify([MANIFEST_VERSION, parts.sha256, name, weights, kernels]))
    .digest('hex')
    .slice(0, 16);
  return join(parts.cacheRoot, 'models', `${name}-${weights}-${key}`);
}

async function requireFile(path: string): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) throw new ModelError(`${path}: there is no such file.`);
  if (!found.isFile()) throw new ModelError(`${path}: is not a file; a model is one GGUF file.`);
}

function asModelError(thrown: unknown, path: string): ModelError | unknown {
  // System calls carry a code; anything else is our bug and keeps its stack.
  if (!(thrown instanceof Error) || !('code' in thrown)) return thrown;
  return new ModelError(`${basename(path)}: could not be prepared (${thrown.message}).`, { cause: thrown });
}
