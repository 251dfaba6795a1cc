/**
 * Delivery: what a request's headers ask of the way in which its answer comes: whether it outlives its connection, and under which key a
 * repetition of the request gets the same answer.
 */
import { ApiError } from '../shared/errors.ts';
import type { JsonObject } from './json-body.ts';
import { textDigest } from './text-digest.ts';

export interface Delivery {
  isResumable: boolean;
  idempotency: Idempotency | undefined;
}

export interface Idempotency {
  /** Digest of tenant and key. */
  digest: string;
  /** Digest of what was asked. */
  bodyDigest: string;
  /** No key was given: it stands for all identical requests that run at once. */
  isCoalesced?: boolean;
}

export const RESUMABLE_HEADER = 'x-sluice-resumable';
export const IDEMPOTENCY_HEADER = 'idempotency-key';

const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;

/** Throws `invalid_value` that names the header. Who gives an idempotency key means to come back, so its answer waits as well. */
export async function readDelivery(headers: Headers, request: { tenant: string; path: string; body: JsonObject }): Promise<Delivery> {
  const key = headers.get(IDEMPOTENCY_HEADER);
  const isResumable = readFlag(headers.get(RESUMABLE_HEADER));
  if (key === null) return { isResumable, idempotency: undefined };
  if (!IDEMPOTENCY_KEY.test(key)) {
    throw new ApiError('invalid_value', 'The header Idempotency-Key must have 1 to 255 visible ASCII characters.', {
      param: IDEMPOTENCY_HEADER,
    });
  }
  const [digest, bodyDigest] = await Promise.all([
    textDigest(`${request.tenant}\n${key}`),
    textDigest(`${request.path}\n${JSON.stringify(request.body)}`),
  ]);
  return { isResumable: true, idempotency: { digest, bodyDigest } };
}

function readFlag(value: string | null): boolean {
  if (value === null || value === 'false') return false;
  if (value === 'true') return true;
  throw new ApiError('invalid_value', `The header ${RESUMABLE_HEADER} must be 'true' or 'false'.`, { param: RESUMABLE_HEADER });
}
