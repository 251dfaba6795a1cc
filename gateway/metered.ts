/**
 * Metered: what a key's owner may still have, told by OpenAI's six headers on every reply, streamed ones and errors too; only what may become
 * work for a batcher is counted. Work is let in by its broker, which tells how the key stands; everything else is let on by a look at the key.
 */
import type { Context, MiddlewareHandler } from 'hono';
import { type ApiError, toApiError } from '../shared/errors.ts';
import { isQuick, type Job, promptsOf } from '../shared/job.ts';
import type { AppEnv } from './app-env.ts';
import { type ClosedDoor, type ClosedDoors, DOOR_HEADER } from './closed-doors.ts';
import { IDEMPOTENCY_HEADER } from './delivery.ts';
import { errorResponse } from './error-response.ts';
import { limitHeaders } from './limit-headers.ts';
import type { Standing } from './tenant/account.ts';
import type { AdmitReply } from './tenant.ts';
import { callObject, refusedError, tenantObject } from './tenant-call.ts';

export interface MeterVariables {
  /** Set by the call that was made for this request, if one was; unknown for a key that is no longer good; told by the reply itself. */
  standing: Standing | 'unknown' | 'told' | undefined;
  doors: ClosedDoors;
  /** Work that nobody waits for: it leaves room in the limits for what somebody does. */
  isBackground?: boolean;
}

/** Calls that only read are let on by a look at the key; those that bring work are let in by their broker, when their body has been read. */
export function metered(doors: ClosedDoors): MiddlewareHandler<AppEnv> {
  return async function meter(c, next) {
    c.set('doors', doors);
    if (c.req.method !== 'POST') await look(c);
    const refused = c.req.method === 'POST' ? refusalAtTheDoor(c, doors) : undefined;
    if (refused !== undefined) return refused;
    await next();
    // Refused before it came to its broker: an unreadable body, an unknown URL.
    if (c.get('standing') === undefined) await look(c).catch(thrown => replaceReply(c, toApiError(thrown)));
    const standing = c.get('standing');
    if (typeof standing !== 'object') return;
    for (const [name, value] of Object.entries(limitHeaders(standing))) c.res.headers.set(name, value);
  };
}

/** The refusal of a job that asks for more than its key was told a moment ago that it may have. */
export function refusalOfTokens(c: Context<AppEnv>, job: Job, promptTokens: number): Response | undefined {
  const { maxTokens } = job.stopping;
  // How much the tenant's object would take for a request without a bound, only it knows.
  if (maxTokens === undefined) return undefined;
  const wantedTokens = (isQuick(job) ? 0 : promptTokens) + maxTokens * job.choiceCount * promptsOf(job).length;
  const refused = c.get('doors').refusal(c.get('caller'), Date.now(), wantedTokens);
  if (refused !== undefined) c.set('standing', 'told');
  return refused;
}

/** Of a broker that was asked to let the request in. */
export function takeStanding(c: Context<AppEnv>, reply: Response): void {
  c.set('standing', 'told');
  const door = reply.headers.get(DOOR_HEADER);
  if (door === null) return;
  reply.headers.delete(DOOR_HEADER);
  c.get('doors').close(c.get('caller'), JSON.parse(door) as ClosedDoor, Date.now());
}

/** No broker was there for the job: should one have reserved something, it costs nothing. */
export async function giveBack(c: Context<AppEnv>, job: Job): Promise<void> {
  // Should that fail, the reservation runs out by itself.
  await tenantObject(c.env, job.tenant)
    .settle([{ id: job.id, model: job.model, used: undefined }])
    .catch(() => undefined);
}

/** Whether the key is still good, and how it stands; counts nothing. Throws the refusal. */
export async function look(c: Context<AppEnv>): Promise<void> {
  const { tenant, keyId } = c.get('caller');
  const reply = await callObject<AdmitReply>(() => tenantObject(c.env, tenant).look(keyId, 'infer'));
  c.set('standing', reply.standing ?? 'unknown');
  if (reply.outcome === 'refused') throw refusedError(reply.error);
}

/** What this key was told a moment ago. A repetition is not counted, so it is let on. */
function refusalAtTheDoor(c: Context<AppEnv>, doors: ClosedDoors): Response | undefined {
  return c.req.header(IDEMPOTENCY_HEADER) === undefined ? doors.refusal(c.get('caller'), Date.now()) : undefined;
}

function replaceReply(c: Context<AppEnv>, error: ApiError): void {
  if (error.status >= 500) return;
  c.res = errorResponse(error);
}
