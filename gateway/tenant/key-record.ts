/** KeyRecord: what a tenant's object knows of one key, which is never the key itself; and what a key may not do. */
import { ApiError } from '../../shared/errors.ts';
import type { Limits } from './limits.ts';

export const SCOPES = ['infer', 'admin'] as const;
/** `infer`: the calls under /v1. `admin`: its own tenant's keys and usage. */
export type Scope = (typeof SCOPES)[number];

export interface KeyRecord {
  id: string;
  /** For people. */
  name: string;
  scopes: Scope[];
  limits: Limits;
  /** Epoch milliseconds. */
  createdAt: number;
  expiresAt: number | undefined;
  revokedAt: number | undefined;
}

/** The key of a self-started gateway has no record: it is in the bindings, or it is not. */
export const DEVELOPMENT_KEY_ID = 'development';

/** A key of ours whose record is gone belonged to a tenant that is gone. */
export function keyFault(record: KeyRecord | undefined, scope: Scope, now: number): ApiError | undefined {
  if (record === undefined || record.revokedAt !== undefined) return new ApiError('invalid_api_key', 'This API key has been revoked.');
  if (record.expiresAt !== undefined && record.expiresAt <= now) return new ApiError('invalid_api_key', 'This API key has expired.');
  if (record.scopes.includes(scope)) return undefined;
  return new ApiError('insufficient_scope', `This API key lacks the scope '${scope}'.`);
}
