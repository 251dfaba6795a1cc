/** The gateway under `wrangler dev`: the same bundle, the same answers; Redis, Durable Objects and streams work there too. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type GatewayServer, startGateway } from '../gateway-server.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';
import { chunksOf, readSse, textOf } from './sse-client.ts';
import { scripted } from './stack.ts';
import { startTokenSource, type TokenSource } from './token-source.ts';

let redis: RedisServer;
let source: TokenSource;
let gateway: GatewayServer;

beforeAll(async () => {
  redis = await startRedis();
  source = await startTokenSource({ redisUrl: redis.url });
  gateway = await startGateway({ redisUrl: redis.url, runtime: 'wrangler' });
});
afterAll(async () => {
  await gateway?.stop();
  await source?.stop();
  await redis?.stop();
});

const post = (body: unknown, key = gateway.key) =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

test('streams, refuses and serves its page', async () => {
  const pieces = Array.from({ length: 50 }, (_, index) => `${index} `);
  const response = await post(scripted({ pieces }, { stream: true }));
  expect(textOf(chunksOf(await readSse(response)))).toBe(pieces.join(''));
  expect(response.headers.get('x-ratelimit-limit-requests')).not.toBeNull();
  expect((await post({}, 'sk-wrong')).status).toBe(401);
  expect((await fetch(gateway.url)).headers.get('content-security-policy')).toContain("default-src 'none'");
});
