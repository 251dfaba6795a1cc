/** AdminCall: one call under /admin, answered with its reply's body; whatever goes wrong is an AdminError that says what to do. */
import type { ErrorBody } from '../../shared/errors.ts';
import { AdminError } from './admin-error.ts';
import type { AdminTarget } from './admin-target.ts';

const TIMEOUT_MS = 30_000;

export type AdminCall = <T>(method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown) => Promise<T>;

export function adminCall({ url, key }: AdminTarget): AdminCall {
  return async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const response = await fetch(`${url}/admin${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }).catch(error => {
      throw new AdminError(
        `No gateway answers at ${url} (${reason(error)}). Start one with npm start, or name another with --url or SLUICE_URL.`,
        1,
      );
    });
    const text = await response.text();
    if (response.ok) return JSON.parse(text) as T;
    throw new AdminError(refusal(response.status, text), 1);
  };
}

function refusal(status: number, text: string): string {
  try {
    const { message, code } = (JSON.parse(text) as ErrorBody).error;
    return `${message} (${status} ${code})`;
  } catch {
    return `The gateway answered with ${status} and no reason; is it Sluice?`;
  }
}

function reason(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  return cause instanceof Error ? cause.message : String(cause);
}
