/**
 * Metered: what a key's owner may still have: one call to the tenant's object a request, which lets it in or refuses it, and OpenAI's six
 * headers on every reply, streamed ones and errors too. Only what may become work for a batcher is counted.
 */
import type { Context, MiddlewareHandler } from 'hono';
import { type ApiError, toApiError } from '../shared/errors.ts';
import { isQuick, type Job, promptsOf } from '../shared/job.ts';
import type { AppEnv } from './app-env.ts';
import type { ClosedDoors } from './closed-doors.ts';
import { IDEMPOTENCY_HEADER } from './delivery.ts';
import { errorResponse } from './error-response.ts';
import type { Standing } from './tenant/account.ts';
import type { AdmitReply } from './tenant.ts';
import { callObject, refusedError, tenantObject } from './tenant-call.ts';
import { estimatePromptTokens } from './token-estimate.ts';

export interface MeterVariables {
  /** Set by the call that was made for this request, if one was; unknown for a key that is no longer good. */
  standing: Standing | 'unknown' | undefined;
  doors: ClosedDoors;
  /** Work that nobody waits for: it leaves room in the limits for what somebody does. */
  isBackground?: boolean;
}

/** Calls that only read are let on by a look at the key; those that bring work are let in by admit, when their body has been read. */
export function metered(doors: ClosedDoors): MiddlewareHandler<AppEnv> {
  return async function meter(c, next) {
    c.set('doors', doors);
    if (c.req.method !== 'POST') await look(c);
    const refused = c.req.method === 'POST' ? refusalAtTheDoor(c, doors) : undefined;
    if (refused !== undefined) return refused;
    await next();
    // Refused before it came to admit: an unreadable body, an unknown URL.
    if (c.get('standing') === undefined) await look(c).catch(thrown => replaceReply(c, toApiError(thrown)));
    const standing = c.get('standing');
    if (standing !== undefined && standing !== 'unknown') setHeaders(c.res.headers, standing);
  };
}

/** A job that may go to its broker, or the answer that was kept for it. */
export type Admitted =
  | { outcome: 'admitted'; job: Job; promptTokens: number; weight: number; isBounded: boolean }
  | { outcome: 'answered'; reply: string };

/**
 * Lets the job in, with a reservation that its broker settles; its answer may have been bounded by the limits. Or tells what was kept under
 * `cacheKey`. Throws the refusal.
 */
export async function admit(c: Context<AppEnv>, job: Job, cacheKey: string | undefined): Promise<Admitted> {
  const { tenant, keyId } = c.get('caller');
  const promptTokens = estimatePromptTokens(job);
  // What no model computes counts as a request and as no tokens.
  const reservedTokens = isQuick(job) ? 0 : promptTokens;
  const { maxTokens, minTokens = 0 } = job.stopping;
  const choiceCount = promptsOf(job).length * job.choiceCount;
  // How much the object would take for a request without a bound, only it knows.
  const wantedTokens = maxTokens === undefined ? undefined : reservedTokens + maxTokens * choiceCount;
  // What may have been kept costs no tokens.
  const closed =
    cacheKey === undefined && wantedTokens !== undefined ? c.get('doors').find({ tenant, keyId }, Date.now(), wantedTokens) : undefined;
  if (closed !== undefined) {
    c.set('standing', closed.standing);
    throw closed.error;
  }
  const reply = await callObject<AdmitReply>(() =>
    tenantObject(c.env, tenant).admit(
      { id: job.id, keyId, promptTokens: reservedTokens, maxTokens, minTokens, choiceCount, isBackground: c.get('isBackground') === true },
      'infer',
      cacheKey,
    ),
  );
  take(c, reply);
  if (reply.outcome === 'refused') {
    const { standing, closedUntil: opensAt, tokensClosed, error } = reply;
    const door =
      opensAt !== undefined
        ? { opensAt }
        : tokensClosed && { opensAt: tokensClosed.retryAt, closedUntil: tokensClosed.until, tokens: tokensClosed };
    if (standing !== undefined && door !== undefined) {
      c.get('doors').close({ tenant, keyId }, { ...door, standing, message: error.message }, Date.now());
    }
    throw refusedError(error);
  }
  if (reply.outcome === 'answered') return { outcome: 'answered', reply: reply.reply };
  const { weight } = reply;
  if (reply.maxTokens === undefined) return { outcome: 'admitted', job, promptTokens, weight, isBounded: false };
  const bounded = { ...job, stopping: { ...job.stopping, maxTokens: reply.maxTokens } };
  return { outcome: 'admitted', job: bounded, promptTokens, weight, isBounded: true };
}

/** The job came to nothing: it costs nothing. */
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
  take(c, reply);
  if (reply.outcome === 'refused') throw refusedError(reply.error);
}

/** What this key was told a moment ago. A repetition is not counted, so it is let on. */
function refusalAtTheDoor(c: Context<AppEnv>, doors: ClosedDoors): Response | undefined {
  const closed = c.req.header(IDEMPOTENCY_HEADER) === undefined ? doors.find(c.get('caller'), Date.now()) : undefined;
  if (closed === undefined) return undefined;
  const response = errorResponse(closed.error);
  setHeaders(response.headers, closed.standing);
  return response;
}

function take(c: Context<AppEnv>, reply: AdmitReply): void {
  c.set('standing', reply.standing ?? 'unknown');
}

function replaceReply(c: Context<AppEnv>, error: ApiError): void {
  if (error.status >= 500) return;
  c.res = errorResponse(error);
}

function setHeaders(headers: Headers, { requests, tokens }: Standing): void {
  headers.set('x-ratelimit-limit-requests', String(requests.limit));
  headers.set('x-ratelimit-limit-tokens', String(tokens.limit));
  headers.set('x-ratelimit-remaining-requests', String(requests.remaining));
  headers.set('x-ratelimit-remaining-tokens', String(tokens.remaining));
  headers.set('x-ratelimit-reset-requests', duration(requests.resetMs));
  headers.set('x-ratelimit-reset-tokens', duration(tokens.resetMs));
}

/** As OpenAI writes it: `120ms`, `1.5s`, `1m1s`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  const hundredths = Math.round(ms / 10);
  const minutes = Math.floor(hundredths / 6_000);
  const seconds = (hundredths - minutes * 6_000) / 100;
  return minutes === 0 ? `${seconds}s` : `${minutes}m${seconds}s`;
}
