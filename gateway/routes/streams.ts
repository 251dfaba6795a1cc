/**
 * GET and DELETE /v1/streams/{id}: a reply once more from where its client stands, and its end before its time. The id is that of the
 * completion. Who is not its tenant, or gives a wrong token, learns no more than that there is no such stream.
 */
import type { Context, MiddlewareHandler } from 'hono';
import { ApiError } from '../../shared/errors.ts';
import type { AppEnv } from '../app-env.ts';
import { callBroker, shardOf } from '../broker-call.ts';
import type { Settings } from '../env.ts';

const STREAM_ID = /^[\w-]{1,128}$/;
const MAX_TOKEN_LENGTH = 256;
const SEQUENCE_NUMBER = /^\d{1,9}$/;

/** EventSource can send no header, so a token in the URL stands for the key: in front of the check of keys, which a request with a token does not meet. */
export function resumeByToken(settings: Settings): MiddlewareHandler<AppEnv> {
  return async function readByToken(c, next) {
    const token = c.req.query('token');
    if (token === undefined) return await next();
    const id = streamId(c);
    if (token.length > MAX_TOKEN_LENGTH) throw noStream();
    return await callBroker(c, shardOf(id, settings), { path: '/resume', body: { id, token, seenSeq: seenSeq(c) } });
  };
}

export function resumeStream(settings: Settings) {
  return async function read(c: Context<AppEnv>): Promise<Response> {
    const id = streamId(c);
    const { tenant } = c.get('caller');
    return await callBroker(c, shardOf(id, settings), { path: '/resume', body: { id, tenant, seenSeq: seenSeq(c) } });
  };
}

export function cancelStream(settings: Settings) {
  return async function cancel(c: Context<AppEnv>): Promise<Response> {
    const id = streamId(c);
    return await callBroker(c, shardOf(id, settings), { path: '/cancel', body: { id, tenant: c.get('caller').tenant } });
  };
}

function streamId(c: Context<AppEnv>): string {
  const id = c.req.param('id') ?? '';
  if (!STREAM_ID.test(id)) throw noStream();
  c.get('logged').jobId = id;
  return id;
}

/** The header, which EventSource sends when it comes back to the same URL, is newer than the URL. */
function seenSeq(c: Context<AppEnv>): number {
  const header = c.req.header('last-event-id');
  const given = header === undefined || header === '' ? c.req.query('after') : header;
  if (given === undefined) return -1;
  if (SEQUENCE_NUMBER.test(given)) return Number(given);
  const param = given === header ? 'last-event-id' : 'after';
  throw new ApiError('invalid_value', `Invalid value for '${param}': it must be the id of an event of this stream.`, { param });
}

function noStream(): ApiError {
  return new ApiError('not_found', 'There is no such stream, or no more.');
}
