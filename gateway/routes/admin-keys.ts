/** /admin/keys: makes keys, each shown in that reply and never again, lists, changes and revokes them. */
import type { Context } from 'hono';
import { KeyChangeIn, KeyIn, type KeyOut, type ListOut } from '../../shared/admin-wire.ts';
import { ApiError } from '../../shared/errors.ts';
import { mayManage } from '../administrator.ts';
import { KeyReader } from '../api-key.ts';
import type { AppEnv } from '../app-env.ts';
import { directoryObject } from '../directory-call.ts';
import type { Settings } from '../env.ts';
import type { KeyRecord } from '../tenant/key-record.ts';
import { callObject, tenantObject } from '../tenant-call.ts';
import { adminBody, queriedTenant } from './admin-body.ts';
import { requireTenant } from './admin-tenants.ts';
import { keyOut, limitsChange } from './admin-wire-out.ts';

export function createKey(settings: Settings) {
  const reader = new KeyReader(settings);
  return async function create(c: Context<AppEnv>): Promise<Response> {
    const given = await adminBody(c, KeyIn, settings);
    mayManage(c, given.tenant);
    if (!reader.canMakeKeys) throw new ApiError('not_configured', 'No key can be made: the gateway has no SLUICE_KEY_SECRET.');
    const expiresAt = expiryOf(given.expires_at);
    await callObject(() => directoryObject(c.env).register(given.tenant));
    const record = await callObject<KeyRecord | undefined>(() =>
      tenantObject(c.env, given.tenant).createKey({
        name: given.name ?? 'key',
        scopes: given.scopes ?? ['infer'],
        expiresAt: expiresAt ?? undefined,
        limits: limitsChange(given.limits),
      }),
    );
    if (record === undefined) throw new ApiError('invalid_value', 'This tenant has as many keys as it may have; revoke one first.');
    const out: KeyOut = { ...keyOut(given.tenant, record), key: await reader.make(given.tenant, record.id) };
    return c.json(out, 201);
  };
}

/** All of a tenant: there are a thousand at most. */
export function listKeys(settings: Settings) {
  return async function list(c: Context<AppEnv>): Promise<Response> {
    const tenant = queriedTenant(c);
    mayManage(c, tenant);
    await requireTenant(c, tenant, settings);
    const records = await callObject<KeyRecord[]>(() => tenantObject(c.env, tenant).keys());
    const reply: ListOut<KeyOut> = { object: 'list', data: records.map(record => keyOut(tenant, record)), has_more: false };
    return c.json(reply);
  };
}

export function changeKey(settings: Settings) {
  return async function change(c: Context<AppEnv>): Promise<Response> {
    const given = await adminBody(c, KeyChangeIn, settings);
    mayManage(c, given.tenant);
    await requireTenant(c, given.tenant, settings);
    const expiresAt = expiryOf(given.expires_at);
    const record = await callObject<KeyRecord | undefined>(() =>
      tenantObject(c.env, given.tenant).changeKey(c.req.param('id') ?? '', {
        name: given.name,
        scopes: given.scopes,
        expiresAt,
        limits: limitsChange(given.limits),
      }),
    );
    return c.json(keyOut(given.tenant, found(record)));
  };
}

/** Revoking it again changes nothing. */
export function revokeKey(settings: Settings) {
  return async function revoke(c: Context<AppEnv>): Promise<Response> {
    const tenant = queriedTenant(c);
    mayManage(c, tenant);
    await requireTenant(c, tenant, settings);
    const record = await callObject<KeyRecord | undefined>(() => tenantObject(c.env, tenant).revokeKey(c.req.param('id') ?? ''));
    return c.json(keyOut(tenant, found(record)));
  };
}

/** Milliseconds; null takes an expiry away. */
function expiryOf(seconds: number | null | undefined): number | null | undefined {
  if (seconds === undefined || seconds === null) return seconds;
  if (seconds * 1000 > Date.now()) return seconds * 1000;
  throw new ApiError('invalid_value', "Invalid value for 'expires_at': it must lie in the future.", { param: 'expires_at' });
}

function found(record: KeyRecord | undefined): KeyRecord {
  if (record !== undefined) return record;
  throw new ApiError('not_found', 'This tenant has no such key.');
}
