/** StartModel: the model that a start was asked for, fetched and prepared when it is not there yet, its progress on the screen. */
import { existsSync } from 'node:fs';
import type { Kernels, Quality } from '../../batcher/model/matrix-form.ts';
import { ensureCompiler } from './c-compiler.ts';
import type { StackModel } from './stack.ts';
import { StartError } from './start-error.ts';
import type { Weights } from './start-options.ts';

export interface ModelWish {
  /** Path of a GGUF file or a name; absent means the default model. */
  model?: string | undefined;
  weights?: Weights | undefined;
  kernels?: Kernels | undefined;
  quality?: Quality | undefined;
}

export interface ModelProgress {
  progress(label: string, done: number, total: number): void;
  note(line: string): void;
}

/** Names of the default model. */
const DEFAULT_NAMES: ReadonlySet<string> = new Set(['default', 'smollm2-135m-instruct']);

/** The embedding model that was asked for: a name that is known here, or a folder. */
export async function prepareEmbeddingModel(wish: string, screen: ModelProgress, signal?: AbortSignal): Promise<StackModel> {
  const onProgress = (done: number, total: number, label: string) => screen.progress(`Embedding model: ${label}`, done, total);
  const { KNOWN_ENCODERS, fetchEncoder } = await import('../../batcher/model/download-encoder.ts');
  const published = KNOWN_ENCODERS.get(wish.toLowerCase());
  if (published === undefined && !existsSync(wish)) {
    throw new StartError(
      `${wish} is neither a folder nor the name of a known embedding model. Give the folder of a sentence-transformers model, or ${[...KNOWN_ENCODERS.keys()].join(' or ')}.`,
    );
  }
  const folder = published === undefined ? wish : await fetchEncoder(published, { onProgress, signal });
  signal?.throwIfAborted();
  const { prepareEncoder } = await import('../../batcher/model/prepare-encoder.ts');
  const prepared = await prepareEncoder(folder, { onProgress, onRebuild: reason => screen.note(reason) });
  return { directory: prepared.directory, name: prepared.name };
}

/** Whether a wish means a model that makes embeddings. */
export async function isEmbeddingModel(wish: string | undefined): Promise<boolean> {
  if (wish === undefined) return false;
  const { KNOWN_ENCODERS } = await import('../../batcher/model/download-encoder.ts');
  const { isEncoderFolder } = await import('../../batcher/model/encoder-folder.ts');
  return KNOWN_ENCODERS.has(wish.toLowerCase()) || (await isEncoderFolder(wish));
}

export async function prepareStartModel(
  wish: ModelWish,
  screen: ModelProgress,
  signal?: AbortSignal,
): Promise<StackModel & { ggufPath: string }> {
  const ggufPath = await findGguf(wish.model, screen, signal);
  signal?.throwIfAborted();
  if (wish.kernels !== 'stock') await ensureCompiler(line => screen.note(line), signal);
  const { prepareWanted } = await import('./prepare-wanted.ts');
  const prepared = await prepareWanted(
    ggufPath,
    {
      ...(wish.weights !== undefined && { weights: wish.weights }),
      kernels: wish.kernels,
      quality: wish.quality,
      onProgress: (done, total, label) => screen.progress(`Model: ${label}`, done, total),
      onRebuild: reason => screen.note(reason),
    },
    line => screen.note(`Model: ${line}.`),
    signal,
  );
  return { directory: prepared.directory, name: prepared.name, ggufPath };
}

async function findGguf(model: string | undefined, screen: ModelProgress, signal: AbortSignal | undefined): Promise<string> {
  if (model !== undefined && !DEFAULT_NAMES.has(model.toLowerCase())) {
    if (existsSync(model)) return model;
    throw new StartError(
      `--model ${model} is neither a file nor a known name. Give the path of a GGUF file, or ${[...DEFAULT_NAMES].join(' or ')}.`,
    );
  }
  const { fetchDefaultModel } = await import('../../batcher/model/download.ts');
  return fetchDefaultModel({ onProgress: (done, total, label) => screen.progress(`Model: ${label}`, done, total), signal });
}
