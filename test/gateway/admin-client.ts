/** AdminClient: the calls under /admin that tests make, with any key. */
import type { KeyOut, ListOut, UsageOut } from '../../shared/admin-wire.ts';
import type { GatewayServer } from '../gateway-server.ts';

export interface AdminClient {
  /** The reply as it is. */
  send(method: string, path: string, body?: unknown): Promise<Response>;
  /** Throws with the reply's text when its status is not 2xx. */
  call<T>(method: string, path: string, body?: unknown): Promise<T>;
  makeKey(plan: Record<string, unknown> & { tenant: string }): Promise<KeyOut & { key: string }>;
  usage(tenant: string): Promise<UsageOut[]>;
}

export function adminClient(gateway: GatewayServer, key = gateway.key): AdminClient {
  const send = (method: string, path: string, body?: unknown) =>
    fetch(`${gateway.url}/admin${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
  const call = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const response = await send(method, path, body);
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  };
  return {
    send,
    call,
    makeKey: plan => call('POST', '/keys', plan),
    usage: async tenant => (await call<ListOut<UsageOut>>('GET', `/usage?tenant=${tenant}`)).data,
  };
}
