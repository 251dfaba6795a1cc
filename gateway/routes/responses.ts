/** /v1/responses: answers that have a name of their own and can be asked for again, stopped, or made without their client. */
import type { Context } from 'hono';
import { ApiError, type ErrorBody, isErrorCode } from '../../shared/errors.ts';
import { type ChatMessage, JOB_VERSION, type Job } from '../../shared/job.ts';
import type { AppEnv } from '../app-env.ts';
import { pageOf, readListRange } from '../batches/list-range.ts';
import { callBroker, type ResponseWant, shardOf } from '../broker-call.ts';
import type { Settings } from '../env.ts';
import { readJsonBody } from '../json-body.ts';
import { look } from '../metered.ts';
import { tracing } from '../request-trace.ts';
import type { InputItemOut } from '../responses/response-input.ts';
import { parseResponseBody, responseRequest } from '../responses/response-request.ts';
import { repetition, submit } from '../submit.ts';

const ID = /^resp_\w{1,64}$/;
const ITEM_BOUNDS = { most: 100, usual: 20 };
const NUMBER = /^\d{1,9}$/;

export function createResponse(settings: Settings) {
  return async function create(c: Context<AppEnv>): Promise<Response> {
    const body = await readJsonBody(c.req.raw, settings);
    const request = parseResponseBody(body, settings);
    const id = `resp_${crypto.randomUUID().replaceAll('-', '')}`;
    const shard = shardOf(id, settings);
    const before = await conversationBefore(c, settings, request.previous_response_id ?? undefined);
    if (before instanceof ApiError) {
      // One that was answered already does without it.
      const repeated = await repetition(c, shard, body);
      if (repeated !== undefined) return repeated;
      throw before;
    }
    const { job: asked, isStreamed, isBackground, isStored, echo, ...bounds } = responseRequest(request, before, settings);
    const head = { version: JOB_VERSION, id, tenant: c.get('caller').tenant, shard, submittedAt: Date.now() };
    const job: Job = { ...head, ...tracing(c.get('trace')), ...asked };
    Object.assign(c.get('logged'), { jobId: id, model: job.model.slice(0, 128), isStreamed });
    return await submit(c, { body, job, reply: { kind: 'response', isStreamed, isBackground, isStored, echo }, ...bounds });
  };
}

/** What a response goes on from, or why it cannot. */
async function conversationBefore(c: Context<AppEnv>, settings: Settings, id: string | undefined): Promise<ChatMessage[] | ApiError> {
  if (id === undefined) return [];
  const body = { id, tenant: c.get('caller').tenant, want: { kind: 'conversation' as const } };
  const reply = await callBroker(c, shardOf(id, settings), { path: '/response', body });
  if (reply.ok) return await reply.json();
  const { code, message, param } = ((await reply.json()) as ErrorBody).error;
  return new ApiError(isErrorCode(code) ? code : 'dependency_unavailable', message, param === null ? {} : { param });
}

/** As it stands now, or with `stream=true` its events, from the one after `starting_after` on. */
export function retrieveResponse(settings: Settings) {
  return async function retrieve(c: Context<AppEnv>): Promise<Response> {
    const isStreamed = flag(c, 'stream');
    const after = c.req.query('starting_after');
    if (after !== undefined && !isStreamed) throw wrong('starting_after', "may be given only when 'stream' is true.");
    if (after !== undefined && !NUMBER.test(after)) throw wrong('starting_after', 'must be the number of an event of this response.');
    return await ask(
      c,
      settings,
      isStreamed ? { kind: 'stream', startingAfter: after === undefined ? -1 : Number(after) } : { kind: 'whole' },
    );
  };
}

export function cancelResponse(settings: Settings) {
  return async function cancel(c: Context<AppEnv>): Promise<Response> {
    await look(c);
    return await ask(c, settings, { kind: 'cancelled' });
  };
}

/** Nobody can ask for it any more; what runs of it in the background is stopped. */
export function deleteResponse(settings: Settings) {
  return async function remove(c: Context<AppEnv>): Promise<Response> {
    return await ask(c, settings, { kind: 'deleted' });
  };
}

export function listInputItems(settings: Settings) {
  return async function items(c: Context<AppEnv>): Promise<Response> {
    const { after, limit, order } = readListRange(name => c.req.query(name), ITEM_BOUNDS);
    const reply = await ask(c, settings, { kind: 'input' });
    if (!reply.ok) return reply;
    const given: InputItemOut[] = await reply.json();
    const all = order === 'asc' ? given : given.reverse();
    const at = after === undefined ? 0 : all.findIndex(item => item.id === after) + 1;
    if (at === 0 && after !== undefined) throw wrong('after', 'must be the id of one of the list.');
    return c.json(pageOf(all.slice(at), limit));
  };
}

async function ask(c: Context<AppEnv>, settings: Settings, want: ResponseWant): Promise<Response> {
  const id = c.req.param('id') ?? '';
  if (!ID.test(id)) throw new ApiError('not_found', `There is no response '${id.slice(0, 128)}'.`);
  c.get('logged').jobId = id;
  return await callBroker(c, shardOf(id, settings), { path: '/response', body: { id, tenant: c.get('caller').tenant, want } });
}

function flag(c: Context<AppEnv>, name: string): boolean {
  const value = c.req.query(name) ?? 'false';
  if (value !== 'true' && value !== 'false') throw wrong(name, "must be 'true' or 'false'.");
  return value === 'true';
}

function wrong(param: string, what: string): ApiError {
  return new ApiError('invalid_value', `Invalid value for '${param}': it ${what}`, { param });
}
