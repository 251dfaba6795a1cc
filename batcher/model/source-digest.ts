/**
 * SourceDigest: the SHA-256 of a GGUF file, remembered in the cache by path, size and time, so that a warm start need not read it.
 */
import { createHash } from 'node:crypto';
import { mkdir, readFile, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { replaceFile } from './atomic-file.ts';
import { sha256OfFile } from './file-digest.ts';

interface DigestRecord {
  path: string;
  byteLength: number;
  modifiedAt: number;
  sha256: string;
}

interface DigestOptions {
  cacheRoot: string;
  onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/** Undefined when the file has to be read for it. */
export async function knownDigest(path: string, cacheRoot: string): Promise<string | undefined> {
  const { size, mtimeMs } = await stat(path);
  const recordPath = await recordPathOf(path, cacheRoot);
  try {
    const record = JSON.parse(await readFile(recordPath, 'utf8')) as Partial<DigestRecord>;
    const isCurrent = record.byteLength === size && record.modifiedAt === mtimeMs && /^[0-9a-f]{64}$/.test(record.sha256 ?? '');
    return isCurrent ? record.sha256 : undefined;
  } catch {
    return undefined;
  }
}

export async function computeDigest(path: string, { cacheRoot, onProgress }: DigestOptions): Promise<string> {
  const { size, mtimeMs } = await stat(path);
  const sha256 = await sha256OfFile(path, done => onProgress?.(done, size));
  const recordPath = await recordPathOf(path, cacheRoot);
  await mkdir(join(cacheRoot, 'sources'), { recursive: true });
  const record: DigestRecord = { path: await realpath(path), byteLength: size, modifiedAt: mtimeMs, sha256 };
  await replaceFile(recordPath, `${JSON.stringify(record)}\n`);
  return sha256;
}

async function recordPathOf(path: string, cacheRoot: string): Promise<string> {
  const key = createHash('sha256')
    .update(await realpath(path))
    .digest('hex')
    .slice(0, 32);
  return join(cacheRoot, 'sources', `${key}.json`);
}
