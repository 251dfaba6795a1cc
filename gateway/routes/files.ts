/** /v1/files: what batches read and what they write. To everyone but their tenant they do not exist. */
import type { Context } from 'hono';
import { ApiError } from '../../shared/errors.ts';
import type { AppEnv } from '../app-env.ts';
import { type DeletedFileOut, type FileOut, fileOut } from '../batches/batch-wire.ts';
import type { Reply } from '../batches/batches.ts';
import type { StoredFile } from '../batches/file-store.ts';
import { pageOf, readListRange } from '../batches/list-range.ts';
import { requireUncoded } from '../content-coding.ts';
import type { Settings } from '../env.ts';
import { look } from '../metered.ts';
import { batchesObject, callObject, refusedError } from '../tenant-call.ts';

/** The host is of no account; an object has no address. */
const ORIGIN = 'http://batches';
/** Of a form around its file. */
const FORM_BYTES = 64 * 1024;
const ID = /^[\w-]{1,128}$/;
const BOUNDS = { most: 10_000, usual: 10_000 };
const PURPOSES = ['batch', 'batch_output'];

export function createFile({ maxFileBytes }: Settings) {
  return async function create(c: Context<AppEnv>): Promise<Response> {
    // Before a byte of it is read: it is no work for a batcher, so nothing else looks at the key.
    await look(c);
    requireUncoded(c.req.raw);
    const { body } = c.req.raw;
    if (Number(c.req.header('content-length') ?? 0) > maxFileBytes + FORM_BYTES) {
      throw new ApiError('body_too_large', `The file is larger than the limit of ${maxFileBytes} bytes.`, { param: 'file' });
    }
    const headers = { 'content-type': c.req.header('content-type') ?? '' };
    const reply = await callObject(() => objectOf(c).fetch(`${ORIGIN}/upload`, { method: 'POST', headers, body }));
    if (!reply.ok) return new Response(reply.body, reply);
    return c.json(fileOut((await reply.json()) as StoredFile));
  };
}

export async function listFiles(c: Context<AppEnv>): Promise<Response> {
  const range = readListRange(name => c.req.query(name), BOUNDS);
  const purpose = c.req.query('purpose') || undefined;
  if (purpose !== undefined && !PURPOSES.includes(purpose)) {
    throw new ApiError('invalid_value', `Invalid value for 'purpose': it must be one of ${PURPOSES.join(', ')}.`, { param: 'purpose' });
  }
  const found = await callObject<StoredFile[]>(() => objectOf(c).listFiles(range, purpose));
  return c.json(pageOf<FileOut>(found.map(fileOut), range.limit));
}

export async function retrieveFile(c: Context<AppEnv>): Promise<Response> {
  const id = fileId(c);
  const file = await callObject<StoredFile | undefined>(() => objectOf(c).findFile(id));
  if (file === undefined) throw noFile(id);
  return c.json(fileOut(file));
}

export async function retrieveContent(c: Context<AppEnv>): Promise<Response> {
  const id = fileId(c);
  const reply = await callObject(() => objectOf(c).fetch(`${ORIGIN}/content?id=${id}`));
  return new Response(reply.body, reply);
}

export async function deleteFile(c: Context<AppEnv>): Promise<Response> {
  const id = fileId(c);
  const reply = await callObject<Reply<boolean>>(() => objectOf(c).deleteFile(id));
  if ('refused' in reply) throw refusedError(reply.refused);
  if (!reply.value) throw noFile(id);
  return c.json({ id, object: 'file', deleted: true } satisfies DeletedFileOut);
}

function objectOf(c: Context<AppEnv>) {
  return batchesObject(c.env, c.get('caller').tenant);
}

function fileId(c: Context<AppEnv>): string {
  const id = c.req.param('id') ?? '';
  if (!ID.test(id)) throw noFile(id);
  return id;
}

function noFile(id: string): ApiError {
  return new ApiError('not_found', `There is no file '${id.slice(0, 128)}'.`);
}
