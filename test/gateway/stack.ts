/** Stack: Redis, the gateway and a token source together, and the calls that tests make. */
import { type GatewayServer, startGateway } from '../gateway-server.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';
import { type Script, startTokenSource, type TokenSource } from './token-source.ts';

export interface Stack {
  redis: RedisServer;
  gateway: GatewayServer;
  source: TokenSource;
  /** Closes every connection of the gateway's to Redis. */
  cutConnections(): Promise<void>;
  /** POST /v1/chat/completions with a key; a string or bytes are sent as they are. */
  post(body: unknown, init?: RequestInit): Promise<Response>;
  stop(): Promise<void>;
}

export async function startStack(
  options: { bindings?: Record<string, string>; contextTokens?: number; rowCount?: number } = {},
): Promise<Stack> {
  const redis = await startRedis();
  const source = await startTokenSource({ redisUrl: redis.url, ...options });
  const gateway = await startGateway({
    redisUrl: redis.url,
    bindings: { SLUICE_ACCESS_LOG: 'off', ...options.bindings },
  });
  return {
    redis,
    gateway,
    source,
    post: (body, init = {}) =>
      fetch(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        ...init,
        headers: { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json', ...init.headers },
        body: typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
      }),
    async cutConnections() {
      // Not the token source's: a job whose taking is cut short is a batcher's affair.
      const clients = String(await source.redis.call('CLIENT', 'LIST')).split('\n');
      for (const client of clients.filter(line => line.includes(' name=sluice-broker-'))) {
        await source.redis.call('CLIENT', 'KILL', 'ID', /^id=(\d+)/.exec(client)![1]!);
      }
    },
    async stop() {
      await gateway.stop();
      await source.stop();
      await redis.stop();
    },
  };
}

/** A body whose answer follows the script. */
export function scripted(script: Script, more: Record<string, unknown> = {}): Record<string, unknown> {
  return { model: 'default', messages: [{ role: 'user', content: JSON.stringify(script) }], ...more };
}

export interface ErrorReply {
  error: { message: string; type: string; param: string | null; code: string };
}

/** Resolves when the condition holds; throws, saying what it waited for, when it has not after 10 s. */
export async function eventually(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited in vain for: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}
