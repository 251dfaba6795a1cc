/** Terms: what a request's headers ask of its queueing and of answers that were given before: how long it may wait, and what it may share. */
import { ApiError } from '../shared/errors.ts';

export interface Terms {
  /** Undefined for the gateway's own bound. */
  maxWaitMs: number | undefined;
  cache: CacheUse;
  /** It shares the generation of an identical request that is running. */
  isCoalesced: boolean;
}

/** `refresh`: an answer is kept, and none that was kept is taken. */
export type CacheUse = 'on' | 'refresh' | 'off';

export const MAX_WAIT_HEADER = 'x-sluice-max-wait-ms';
export const CACHE_HEADER = 'x-sluice-cache';
export const COALESCE_HEADER = 'x-sluice-coalesce';

const MAX_WAIT_MS = 86_400_000;

/** Throws `invalid_value` that names the header. */
export function readTerms(headers: Headers): Terms {
  return {
    maxWaitMs: readWait(headers.get(MAX_WAIT_HEADER)),
    cache: readCacheUse(headers),
    isCoalesced: readCoalesce(headers.get(COALESCE_HEADER)),
  };
}

function readWait(value: string | null): number | undefined {
  if (value === null) return undefined;
  const ms = /^\d{1,9}$/.test(value.trim()) ? Number(value) : Number.NaN;
  if (ms <= MAX_WAIT_MS) return ms;
  throw invalid(MAX_WAIT_HEADER, `a whole number of milliseconds from 0 to ${MAX_WAIT_MS}`);
}

function readCacheUse(headers: Headers): CacheUse {
  const value = headers.get(CACHE_HEADER) ?? 'on';
  if (value !== 'on' && value !== 'off') throw invalid(CACHE_HEADER, "'on' or 'off'");
  const directives = (headers.get('cache-control') ?? '').toLowerCase().split(/\s*,\s*/);
  if (value === 'off' || directives.includes('no-store')) return 'off';
  return directives.some(directive => directive === 'no-cache' || directive === 'max-age=0') ? 'refresh' : 'on';
}

function readCoalesce(value: string | null): boolean {
  if (value === null || value === 'false') return false;
  if (value === 'true') return true;
  throw invalid(COALESCE_HEADER, "'true' or 'false'");
}

function invalid(header: string, rule: string): ApiError {
  return new ApiError('invalid_value', `The header ${header} must be ${rule}.`, { param: header });
}
