/** StartModel: the model that a start was asked for, fetched and prepared when it is not there yet, its progress on the screen. */
import { existsSync } from 'node:fs';
import { ensureCompiler } from './c-compiler.ts';
import type { StackModel } from './stack.ts';
import { StartError } from './start-error.ts';
import type { Kernels, Weights } from './start-options.ts';

export interface ModelWish {
  /** Path of a GGUF file or a name; absent means the default model. */
  model?: string | undefined;
  weights?: Weights | undefined;
  kernels?: Kernels | undefined;
}

export interface ModelProgress {
  progress(label: string, done: number, total: number): void;
  note(line: string): void;
}

/** Names of the default model. */
const DEFAULT_NAMES: ReadonlySet<string> = new Set(['default', 'smollm2-135m-instruct']);

export async function prepareStartModel(
  wish: ModelWish,
  screen: ModelProgress,
  signal?: AbortSignal,
): Promise<StackModel & { ggufPath: string }> {
  const ggufPath = await findGguf(wish.model, screen, signal);
  signal?.throwIfAborted();
  if (wish.kernels !== 'stock') await ensureCompiler(line => screen.note(line), signal);
  const { prepareModel } = await import('../../batcher/model/prepare.ts');
  const prepared = await prepareModel(ggufPath, {
    ...(wish.weights !== undefined && { weights: wish.weights }),
    kernels: wish.kernels,
    onProgress: (done, total, label) => screen.progress(`Model: ${label}`, done, total),
    onRebuild: reason => screen.note(reason),
  });
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
