/**
 * Manifest: what a folder of the prepared-model cache holds, written last, so that a folder without a valid one counts as absent.
 * It carries a checksum of itself and size, time and SHA-256 of each file beside it.
 */
import { createHash } from 'node:crypto';
import { readFile, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { KvType } from '../engine/engine.ts';
import { replaceFile } from './atomic-file.ts';
import type { EncoderShape } from './encoder-folder.ts';
import { sha256OfFile } from './file-digest.ts';
import type { Kernels, Quality } from './matrix-form.ts';

/** Raise it whenever the graph, the data layout or the vocabulary file changes: older folders are then rebuilt. */
export const MANIFEST_VERSION = 5;
export const MANIFEST_FILE = 'manifest.json';

export interface PreparedFile {
  name: string;
  byteLength: number;
  sha256: string;
  /** Epoch milliseconds; while it stays, the content is taken to be the same. */
  modifiedAt: number;
}

interface ManifestHead {
  version: typeof MANIFEST_VERSION;
  /** After the file or folder, in lower case, as clients say it. */
  name: string;
  source: { fileName: string; byteLength: number; sha256: string };
  files: PreparedFile[];
}

/** Of a model that generates text. */
export interface Manifest extends ManifestHead {
  /** What was asked for: `import` keeps quantized tensors as they are. */
  weights: 'import' | 'q4' | 'q8' | 'f32';
  quality: Quality;
  /** Whose operators the graph uses: onnxruntime's alone, or our own too. */
  kernels: Kernels;
  /** A token gets the same bits in every batch and chunking, by prefill and by decode. */
  isBatchInvariant: boolean;
  /** Types of KV cache that it has graphs for. */
  kvTypes: KvType[];
  /** How many matrices are stored in each form. */
  forms: Record<string, number>;
  shape: {
    layers: number;
    heads: number;
    kvHeads: number;
    headDim: number;
    width: number;
    vocabSize: number;
    contextTokens: number;
  };
  /** Tokens that end a generation. */
  endTokenIds: number[];
  bosTokenId?: number;
  /** A prompt starts with the BOS token. */
  addBos: boolean;
}

/** Of a model that makes embeddings. */
export interface EncoderManifest extends ManifestHead {
  kind: 'encoder';
  shape: EncoderShape;
}

export type AnyManifest = Manifest | EncoderManifest;

export function isEncoder(manifest: AnyManifest): manifest is EncoderManifest {
  return 'kind' in manifest && manifest.kind === 'encoder';
}

export async function writeManifest(directory: string, manifest: AnyManifest): Promise<void> {
  const json = JSON.stringify({ ...manifest, checksum: checksumOf(manifest) }, undefined, 2);
  await replaceFile(join(directory, MANIFEST_FILE), `${json}\n`);
}

export async function describeFile(directory: string, name: string, onBytes?: (doneBytes: number) => void): Promise<PreparedFile> {
  const path = join(directory, name);
  const sha256 = await sha256OfFile(path, onBytes);
  const { size, mtimeMs } = await stat(path);
  return { name, byteLength: size, sha256, modifiedAt: mtimeMs };
}

export type Check = { state: 'intact'; manifest: AnyManifest } | { state: 'absent' } | { state: 'damaged'; reason: string };

/**
 * Looks at sizes and times only, unless a time differs (a copied cache) or `thorough` asks to read everything. A file that has
 * another time and its old content gets its new time recorded. The folder's own time is then that of its last use.
 */
export async function checkPrepared(directory: string, { thorough = false } = {}): Promise<Check> {
  const manifest = await readManifest(directory);
  if ('state' in manifest) return manifest;
  let isTouched = false;
  for (const file of manifest.files) {
    const path = join(directory, file.name);
    const found = await stat(path).catch(() => undefined);
    if (found === undefined) return damaged(`${file.name} is missing`);
    if (found.size !== file.byteLength) return damaged(`${file.name} has ${found.size} bytes instead of ${file.byteLength}`);
    if (!thorough && found.mtimeMs === file.modifiedAt) continue;
    if ((await sha256OfFile(path)) !== file.sha256) return damaged(`the content of ${file.name} has changed`);
    isTouched ||= found.mtimeMs !== file.modifiedAt;
    file.modifiedAt = found.mtimeMs;
  }
  // A cache that cannot be written to is as good; the next start hashes again.
  if (isTouched) await writeManifest(directory, manifest).catch(() => undefined);
  const now = new Date();
  await utimes(directory, now, now).catch(() => undefined);
  return { state: 'intact', manifest };
}

async function readManifest(directory: string): Promise<AnyManifest | Check> {
  let text: string;
  try {
    text = await readFile(join(directory, MANIFEST_FILE), 'utf8');
  } catch {
    const isThere = await stat(directory).then(
      () => true,
      () => false,
    );
    return isThere ? damaged(`${MANIFEST_FILE} is missing`) : { state: 'absent' };
  }
  try {
    const { checksum, ...manifest } = JSON.parse(text) as AnyManifest & { checksum: unknown };
    if (manifest.version !== MANIFEST_VERSION) return damaged(`it has version ${String(manifest.version)} instead of ${MANIFEST_VERSION}`);
    // What matches was written by this version as it stands: nothing more to check.
    return checksum === checksumOf(manifest as AnyManifest)
      ? (manifest as AnyManifest)
      : damaged(`${MANIFEST_FILE} does not match its checksum`);
  } catch {
    return damaged(`${MANIFEST_FILE} cannot be read`);
  }
}

function damaged(reason: string): Check {
  return { state: 'damaged', reason };
}

function checksumOf(manifest: AnyManifest): string {
  return createHash('sha256').update(JSON.stringify(manifest)).digest('hex');
}
