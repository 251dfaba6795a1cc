/** GET /admin/usage?tenant&from&to: what a tenant used, one row a day, key and model; both days are counted in. */
import type { Context } from 'hono';
import type { ListOut, UsageOut } from '../../shared/admin-wire.ts';
import { ApiError } from '../../shared/errors.ts';
import { mayManage } from '../administrator.ts';
import type { AppEnv } from '../app-env.ts';
import type { Settings } from '../env.ts';
import { DAY_MS, dayOf } from '../tenant/meter.ts';
import type { UsageRow } from '../tenant/tenant-store.ts';
import { callObject, tenantObject } from '../tenant-call.ts';
import { queriedCount, queriedTenant } from './admin-body.ts';
import { requireTenant } from './admin-tenants.ts';
import { usageOut } from './admin-wire-out.ts';

const PAGE = { fallback: 1_000, max: 10_000 };
const DEFAULT_DAYS = 30;

export function listUsage(settings: Settings) {
  return async function list(c: Context<AppEnv>): Promise<Response> {
    const tenant = queriedTenant(c);
    mayManage(c, tenant);
    const limit = queriedCount(c, 'limit', PAGE);
    const toDay = queriedDay(c, 'to') ?? dayOf(Date.now());
    const fromDay = queriedDay(c, 'from') ?? toDay - DEFAULT_DAYS + 1;
    if (fromDay > toDay) throw new ApiError('invalid_value', "Invalid value for 'from': it must not be after 'to'.", { param: 'from' });
    await requireTenant(c, tenant, settings);
    const rows = await callObject<UsageRow[]>(() => tenantObject(c.env, tenant).usage({ fromDay, toDay, limit: limit + 1 }));
    const reply: ListOut<UsageOut> = { object: 'list', data: rows.slice(0, limit).map(usageOut), has_more: rows.length > limit };
    return c.json(reply);
  };
}

function queriedDay(c: Context<AppEnv>, name: string): number | undefined {
  const given = c.req.query(name);
  if (given === undefined) return undefined;
  const at = /^\d{4}-\d{2}-\d{2}$/.test(given) ? Date.parse(`${given}T00:00:00Z`) : Number.NaN;
  // Date.parse takes 30 February for 2 March.
  if (!Number.isNaN(at) && new Date(at).toISOString().startsWith(given)) return at / DAY_MS;
  throw new ApiError('invalid_value', `Invalid value for '${name}': expected a UTC date like 2026-01-31.`, { param: name });
}
