/** /v1/batches: many requests in a file, done when there is room. To everyone but their tenant they do not exist. */
import type { Context } from 'hono';
import { ApiError } from '../../shared/errors.ts';
import type { AppEnv } from '../app-env.ts';
import type { BatchRecord } from '../batches/batch-store.ts';
import { BatchBody, type BatchOut, batchOut } from '../batches/batch-wire.ts';
import type { Reply } from '../batches/batches.ts';
import { pageOf, readListRange } from '../batches/list-range.ts';
import type { Settings } from '../env.ts';
import { readJsonBody } from '../json-body.ts';
import { look } from '../metered.ts';
import { refusal } from '../refusal.ts';
import { batchesObject, callObject, refusedError } from '../tenant-call.ts';

const ID = /^[\w-]{1,128}$/;
const BOUNDS = { most: 100, usual: 20 };

export function createBatch(settings: Settings) {
  return async function create(c: Context<AppEnv>): Promise<Response> {
    const body = await readJsonBody(c.req.raw, settings);
    await look(c);
    const parsed = BatchBody.safeParse(body, { reportInput: true });
    if (!parsed.success) throw refusal(parsed.error);
    const { input_file_id, endpoint, metadata, output_expires_after } = parsed.data;
    const { tenant, keyId } = c.get('caller');
    const outputLifetimeMs = output_expires_after ? output_expires_after.seconds * 1000 : undefined;
    const plan = { tenant, keyId, endpoint, inputFileId: input_file_id, metadata: metadata ?? null, outputLifetimeMs };
    const reply = await callObject<Reply<BatchRecord>>(() => batchesObject(c.env, tenant).create(plan));
    if ('refused' in reply) throw refusedError(reply.refused);
    return c.json(batchOut(reply.value));
  };
}

export async function listBatches(c: Context<AppEnv>): Promise<Response> {
  const range = readListRange(name => (name === 'order' ? undefined : c.req.query(name)), BOUNDS);
  const found = await callObject<BatchRecord[]>(() => objectOf(c).list(range));
  return c.json(pageOf<BatchOut>(found.map(batchOut), range.limit));
}

export async function retrieveBatch(c: Context<AppEnv>): Promise<Response> {
  const id = batchId(c);
  const batch = await callObject<BatchRecord | undefined>(() => objectOf(c).find(id));
  if (batch === undefined) throw noBatch(id);
  return c.json(batchOut(batch));
}

export async function cancelBatch(c: Context<AppEnv>): Promise<Response> {
  await look(c);
  const id = batchId(c);
  const reply = await callObject<Reply<BatchRecord | undefined>>(() => objectOf(c).cancel(id));
  if ('refused' in reply) throw refusedError(reply.refused);
  if (reply.value === undefined) throw noBatch(id);
  return c.json(batchOut(reply.value));
}

function objectOf(c: Context<AppEnv>) {
  return batchesObject(c.env, c.get('caller').tenant);
}

function batchId(c: Context<AppEnv>): string {
  const id = c.req.param('id') ?? '';
  if (!ID.test(id)) throw noBatch(id);
  return id;
}

function noBatch(id: string): ApiError {
  return new ApiError('not_found', `There is no batch '${id.slice(0, 128)}'.`);
}
