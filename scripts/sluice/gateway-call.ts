/** GatewayCall: one call of the gateway, answered with its reply's body; whatever goes wrong is an error that says what to do. */
import type { ErrorBody } from '../../shared/errors.ts';
import { CommandError } from './command-error.ts';
import type { GatewayTarget } from './gateway-target.ts';

const TIMEOUT_MS = 30_000;

/** A call that got no good reply. */
export class RefusedCall extends CommandError {
  /** Undefined where nobody answered. */
  readonly status: number | undefined;

  constructor(message: string, status: number | undefined) {
    super(message, 1);
    this.status = status;
  }

  /** The same call may do better later. */
  get isPassing(): boolean {
    return this.status === undefined || this.status === 503;
  }
}

export type GatewayCall = <T>(method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown) => Promise<T>;

/** `root` stands in front of all paths: `/admin`, `/v1`. */
export function gatewayCall(target: GatewayTarget, root: string): GatewayCall {
  return async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const response = await ask(target, `${root}${path}`, {
      method,
      headers: body === undefined ? {} : { 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    return JSON.parse(await response.text()) as T;
  };
}

/** A reply that is good; its body is still to be read. */
export async function ask(
  { url, key }: GatewayTarget,
  path: string,
  init: RequestInit & { headers?: Record<string, string> },
): Promise<Response> {
  const response = await fetch(`${url}${path}`, { ...init, headers: { authorization: `Bearer ${key}`, ...init.headers } }).catch(error => {
    if (error instanceof Error && error.name === 'AbortError') throw error;
    throw new RefusedCall(
      `No gateway answers at ${url} (${reason(error)}). Start one with npm start, or name another with --url or SLUICE_URL.`,
      undefined,
    );
  });
  if (response.ok) return response;
  throw new RefusedCall(refusal(response.status, await response.text()), response.status);
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
