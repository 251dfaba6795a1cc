/**
 * Administrator: who calls under /admin: the operator, who may do everything, or the owner of a key with the scope `admin`, who sees and
 * manages the keys and the usage of its own tenant and nothing else.
 */
import type { Context, MiddlewareHandler } from 'hono';
import { ApiError } from '../shared/errors.ts';
import { KeyReader } from './api-key.ts';
import type { AppEnv } from './app-env.ts';
import type { Settings } from './env.ts';
import type { AdmitReply } from './tenant.ts';
import { callObject, refusedError, tenantObject } from './tenant-call.ts';

export type Administrator = { kind: 'operator' } | { kind: 'tenant'; tenant: string };

export interface AdministratorVariables {
  administrator: Administrator;
}

export function requireAdministrator(settings: Settings): MiddlewareHandler<AppEnv> {
  const reader = new KeyReader(settings);
  return async function checkAdministrator(c, next) {
    const { kind, caller } = await reader.identify(c.req.header('authorization'));
    if (kind === 'operator') {
      c.set('administrator', { kind: 'operator' });
    } else {
      const { tenant, keyId } = caller;
      const reply = await callObject<AdmitReply>(() => tenantObject(c.env, tenant).look(keyId, 'admin'));
      if (reply.outcome === 'refused') throw refusedError(reply.error);
      c.set('administrator', { kind: 'tenant', tenant });
    }
    await next();
  };
}

/** Throws `insufficient_scope`, whether there is such a tenant or not. */
export function mayManage(c: Context<AppEnv>, tenant: string): void {
  const administrator = c.get('administrator');
  if (administrator.kind === 'tenant' && administrator.tenant !== tenant) {
    throw new ApiError('insufficient_scope', `This key manages the tenant '${administrator.tenant}' only.`);
  }
}

/** Throws `insufficient_scope`. */
export function mustBeOperator(c: Context<AppEnv>): void {
  if (c.get('administrator').kind !== 'operator') throw new ApiError('insufficient_scope', 'This call is for the operator only.');
}
