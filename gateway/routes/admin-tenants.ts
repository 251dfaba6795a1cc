/** /admin/tenants: makes tenants and sets their limits, lists them, and takes them away with all that they have. */
import type { Context } from 'hono';
import { type ListOut, TenantIn, type TenantOut } from '../../shared/admin-wire.ts';
import { ApiError } from '../../shared/errors.ts';
import { mayManage, mustBeOperator } from '../administrator.ts';
import { DEVELOPMENT_TENANT } from '../api-key.ts';
import type { AppEnv } from '../app-env.ts';
import { directoryObject } from '../directory-call.ts';
import type { Settings } from '../env.ts';
import type { Limits } from '../tenant/limits.ts';
import { batchesObject, callObject, tenantObject } from '../tenant-call.ts';
import { adminBody, queriedCount, tenantName } from './admin-body.ts';
import { limitsChange, tenantOut } from './admin-wire-out.ts';

const PAGE = { fallback: 20, max: 100 };

/** 201 for a new one, 200 for one that was there, whose limits are changed. */
export function putTenant(settings: Settings) {
  return async function put(c: Context<AppEnv>): Promise<Response> {
    mustBeOperator(c);
    const { name, limits: given, weight: wanted } = await adminBody(c, TenantIn, settings);
    const { entry, isNew } = await callObject(() => directoryObject(c.env).register(name));
    const limits = await callObject<Limits>(() => tenantObject(c.env, name).setLimits(limitsChange(given)));
    if (wanted !== undefined) await callObject(() => tenantObject(c.env, name).setWeight(wanted));
    const weight = await weightOf(c, name);
    return c.json(tenantOut({ ...entry, limits, weight }), isNew ? 201 : 200);
  };
}

/** In the order of their names; `after` is the last name of the page before. A tenant's own administrator sees its own. */
export function listTenants(settings: Settings) {
  return async function list(c: Context<AppEnv>): Promise<Response> {
    const administrator = c.get('administrator');
    const limit = queriedCount(c, 'limit', PAGE);
    const after = c.req.query('after') ?? '';
    const directory = directoryObject(c.env);
    let entries: { name: string; createdAt: number | undefined }[];
    if (administrator.kind === 'tenant') {
      const own = await callObject(() => directory.find(administrator.tenant));
      entries = own === undefined ? [] : [own];
    } else {
      entries = await callObject(() => directory.list(after, limit + 1));
      if (settings.developmentKey !== undefined) entries = withDevelopment(entries, after);
    }
    const page = entries.slice(0, limit);
    const data = await Promise.all(
      page.map(async entry => tenantOut({ ...entry, limits: await limitsOf(c, entry.name), weight: await weightOf(c, entry.name) })),
    );
    const reply: ListOut<TenantOut> = { object: 'list', data, has_more: entries.length > limit };
    return c.json(reply);
  };
}

export function retrieveTenant(settings: Settings) {
  return async function retrieve(c: Context<AppEnv>): Promise<Response> {
    const name = tenantName(c.req.param('name') ?? '');
    mayManage(c, name);
    const createdAt = await requireTenant(c, name, settings);
    return c.json(tenantOut({ name, createdAt, limits: await limitsOf(c, name), weight: await weightOf(c, name) }));
  };
}

/** Its keys are refused from now on; its ledger is gone. */
export function deleteTenant() {
  return async function remove(c: Context<AppEnv>): Promise<Response> {
    mustBeOperator(c);
    const name = tenantName(c.req.param('name') ?? '');
    if ((await callObject(() => directoryObject(c.env).find(name))) === undefined) throw noTenant(name);
    // Its object first: should the second call fail, it can be asked for again.
    await callObject(() => Promise.all([tenantObject(c.env, name).erase(), batchesObject(c.env, name).erase()]));
    await callObject(() => directoryObject(c.env).remove(name));
    return c.json({ object: 'tenant', name, deleted: true });
  };
}

/** When it was made; undefined for the development tenant, which is there by its key. Throws `not_found`. */
export async function requireTenant(c: Context<AppEnv>, name: string, settings: Settings): Promise<number | undefined> {
  const entry = await callObject(() => directoryObject(c.env).find(name));
  if (entry !== undefined) return entry.createdAt;
  if (name === DEVELOPMENT_TENANT && settings.developmentKey !== undefined) return undefined;
  throw noTenant(name);
}

function noTenant(name: string): ApiError {
  return new ApiError('not_found', `There is no tenant '${name}'.`, { param: 'tenant' });
}

function limitsOf(c: Context<AppEnv>, name: string): Promise<Limits> {
  return callObject<Limits>(() => tenantObject(c.env, name).limits());
}

function weightOf(c: Context<AppEnv>, name: string): Promise<number> {
  return callObject<number>(() => tenantObject(c.env, name).weight());
}

function withDevelopment(entries: { name: string; createdAt: number | undefined }[], after: string) {
  if (after >= DEVELOPMENT_TENANT || entries.some(({ name }) => name === DEVELOPMENT_TENANT)) return entries;
  return [...entries, { name: DEVELOPMENT_TENANT, createdAt: undefined }].sort((a, b) => (a.name < b.name ? -1 : 1));
}
