/** Upload: a form with a file, written to the store as it comes; nobody sees the file before the whole form is there and right. */
import { ApiError } from '../../shared/errors.ts';
import { joinedBytes } from '../joined-bytes.ts';
import { discard } from '../linger.ts';
import type { FileStore, StoredFile } from './file-store.ts';
import { formParts } from './multipart.ts';

export interface UploadOptions {
  files: FileStore;
  settings: { maxFileBytes: number; maxStoredBytes: number; fileLifetimeMs: number };
  clock(): number;
}

/** Of a tenant. */
const MAX_FILES = 10_000;
const MAX_FIELD_BYTES = 4_096;
const MAX_FILENAME = 255;
/** Of silence in the middle of an upload. */
const PATIENCE_MS = 60_000;
const MIN_LIFETIME_S = 3_600;
/** Pieces that come from the network are smaller than those that are worth a row. */
const ROW_BYTES = 256 * 1024;

/** Throws ApiError that names the field; what was written is then gone. */
export async function receiveFile(body: AsyncIterable<Uint8Array>, boundary: string, options: UploadOptions): Promise<StoredFile> {
  const { files, settings, clock } = options;
  const id = `file-${crypto.randomUUID().replaceAll('-', '')}`;
  const fields = new Map<string, string>();
  let filename: string | undefined;
  const pieces = unsilent(body);
  files.begin(id, 'batch');
  try {
    if (files.count >= MAX_FILES) throw full(`You have ${MAX_FILES} files, which is the most. Delete some.`);
    for await (const part of formParts(pieces, boundary)) {
      if (part.name !== 'file') {
        fields.set(part.name, await readField(part.name, part.content));
        continue;
      }
      if (filename !== undefined) throw fault('file', 'There may be one file only.');
      filename = (part.filename ?? '').split(/[\\/]/).at(-1)!.slice(0, MAX_FILENAME) || 'file.jsonl';
      await write(id, part.content, options);
    }
    if (filename === undefined) throw new ApiError('missing_required_parameter', "Missing required parameter: 'file'.", { param: 'file' });
    checkPurpose(fields.get('purpose'));
    const createdAt = clock();
    return files.finish(id, { filename, createdAt, expiresAt: createdAt + lifetimeMs(fields, settings.fileLifetimeMs) });
  } catch (error) {
    files.remove(id);
    await discard(pieces);
    throw error;
  }
}

/** Ends with an error when nothing comes for too long, or when its client has left. */
async function* unsilent(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const iterator = body[Symbol.asyncIterator]();
  for (;;) {
    let timer: ReturnType<typeof setTimeout>;
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('nothing came for too long')), PATIENCE_MS);
    });
    try {
      const next = await Promise.race([iterator.next(), silence]);
      if (next.done === true) return;
      yield next.value;
    } catch (cause) {
      throw new ApiError('invalid_value', 'The body could not be read to its end.', { cause });
    } finally {
      clearTimeout(timer!);
    }
  }
}

async function write(id: string, content: AsyncIterable<Uint8Array>, { files, settings }: UploadOptions): Promise<void> {
  let bytes = 0;
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  const flush = () => {
    if (heldBytes > 0) files.append(id, joinedBytes(held));
    [held, heldBytes] = [[], 0];
  };
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > settings.maxFileBytes) {
      throw new ApiError('body_too_large', `The file is larger than the limit of ${settings.maxFileBytes} bytes.`, { param: 'file' });
    }
    if (files.totalBytes + heldBytes + piece.length > settings.maxStoredBytes) {
      throw full(`Your files would take more than the ${settings.maxStoredBytes} bytes that they may. Delete some.`);
    }
    // The piece is the network's, which uses it again.
    held.push(piece.slice());
    heldBytes += piece.length;
    if (heldBytes >= ROW_BYTES) flush();
  }
  flush();
  if (bytes === 0) throw fault('file', 'The file is empty.');
}

async function readField(name: string, content: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const piece of content) {
    text += decoder.decode(piece, { stream: true });
    if (text.length > MAX_FIELD_BYTES) throw fault(name.slice(0, 64), `The field is longer than ${MAX_FIELD_BYTES} bytes.`);
  }
  return text + decoder.decode();
}

function checkPurpose(purpose: string | undefined): void {
  if (purpose === undefined)
    throw new ApiError('missing_required_parameter', "Missing required parameter: 'purpose'.", { param: 'purpose' });
  if (purpose !== 'batch')
    throw fault('purpose', `Invalid value for 'purpose': files are taken for 'batch' only, but got '${purpose.slice(0, 64)}'.`);
}

function lifetimeMs(fields: ReadonlyMap<string, string>, most: number): number {
  const [anchor, seconds] = ['expires_after[anchor]', 'expires_after[seconds]'].map(name => fields.get(name));
  if (anchor === undefined && seconds === undefined) return most;
  if (anchor !== 'created_at') throw fault('expires_after[anchor]', "Invalid value for 'expires_after[anchor]': expected 'created_at'.");
  const count = /^\d{1,9}$/.test(seconds ?? '') ? Number(seconds) : Number.NaN;
  if (count >= MIN_LIFETIME_S && count * 1000 <= most) return count * 1000;
  const bounds = `a whole number from ${MIN_LIFETIME_S} to ${Math.floor(most / 1000)}`;
  throw fault('expires_after[seconds]', `Invalid value for 'expires_after[seconds]': it must be ${bounds}.`);
}

function full(message: string): ApiError {
  return new ApiError('storage_full', message, { param: 'file' });
}

function fault(param: string, message: string): ApiError {
  return new ApiError('invalid_value', message, { param });
}
