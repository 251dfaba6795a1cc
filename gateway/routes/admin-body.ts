/** AdminBody: what comes in with an admin call, checked: a JSON body by its schema, a tenant's name and a page from the query. */
import type { Context } from 'hono';
import type { z } from 'zod';
import { TenantName } from '../../shared/admin-wire.ts';
import { ApiError } from '../../shared/errors.ts';
import type { AppEnv } from '../app-env.ts';
import type { Settings } from '../env.ts';
import { readJsonBody } from '../json-body.ts';
import { refusal } from '../refusal.ts';

/** No admin body comes near it. */
const MAX_BODY_BYTES = 16 * 1024;

/** Throws the ApiError of the first fault. */
export async function adminBody<T extends z.ZodType>(c: Context<AppEnv>, schema: T, settings: Settings): Promise<z.output<T>> {
  const body = await readJsonBody(c.req.raw, { maxBodyBytes: MAX_BODY_BYTES, maxJsonDepth: settings.maxJsonDepth });
  const parsed = schema.safeParse(body, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  return parsed.data;
}

/** The tenant that the query names; a tenant's own administrator need not name it. */
export function queriedTenant(c: Context<AppEnv>): string {
  const administrator = c.get('administrator');
  const given = c.req.query('tenant') ?? (administrator.kind === 'tenant' ? administrator.tenant : undefined);
  if (given === undefined) throw new ApiError('missing_required_parameter', "Missing required parameter: 'tenant'.", { param: 'tenant' });
  return tenantName(given);
}

export function tenantName(given: string): string {
  const name = TenantName.safeParse(given);
  if (name.success) return name.data;
  throw new ApiError('invalid_value', `Invalid value for 'tenant': ${name.error.issues[0]?.message}.`, { param: 'tenant' });
}

/** A whole number of the query within its bounds. */
export function queriedCount(c: Context<AppEnv>, name: string, bounds: { fallback: number; max: number }): number {
  const given = c.req.query(name);
  if (given === undefined) return bounds.fallback;
  const count = /^\d{1,9}$/.test(given) ? Number(given) : 0;
  if (count >= 1 && count <= bounds.max) return count;
  throw new ApiError('invalid_value', `Invalid value for '${name}': expected a whole number from 1 to ${bounds.max}.`, { param: name });
}
