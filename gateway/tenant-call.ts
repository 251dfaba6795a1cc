/** TenantCall: how Worker and brokers reach a tenant's object, and how its refusals become errors again. */
import { ApiError } from '../shared/errors.ts';
import type { Batches } from './batches/batches.ts';
import type { Env } from './env.ts';
import type { RefusedCall, Tenant } from './tenant.ts';

export type { RefusedCall };

const RETRY_AFTER_SECONDS = 1;

export function tenantObject(env: Env, tenant: string): DurableObjectStub<Tenant> {
  return env.TENANT.get(env.TENANT.idFromName(tenant));
}

/** The answer of an object; one that cannot be reached is `dependency_unavailable`. */
export async function callObject<T>(call: () => PromiseLike<T>): Promise<T> {
  try {
    return await call();
  } catch (cause) {
    throw new ApiError('dependency_unavailable', 'The account cannot be reached at the moment. Try again shortly.', {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
      cause,
    });
  }
}

export function batchesObject(env: Env, tenant: string): DurableObjectStub<Batches> {
  return env.BATCHES.get(env.BATCHES.idFromName(tenant));
}

export function plainError({ code, message, param, retryAfterSeconds }: ApiError): RefusedCall {
  return { code, message, param, retryAfterSeconds };
}

export function refusedError({ code, message, param, retryAfterSeconds }: RefusedCall): ApiError {
  return new ApiError(code, message, {
    ...(param !== undefined && { param }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  });
}
