/** `npm run batcher`: a batcher on one host, Redis and the gateway on others; what they share is the Redis alone. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type GatewayServer, startGateway } from '../gateway-server.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';
import { until } from './process-life.ts';

/** More than is made in the time that other scripts have to end. */
const LONG_ANSWER_TOKENS = 1_000;
const RUN = join(import.meta.dirname, '../../scripts/run.mjs');

async function askOnceServed(batcher: ChildProcess, gateway: GatewayServer, body: object): Promise<Response> {
  await until(async () => batcher.exitCode !== null || (await fetch(`${gateway.url}/ready`)).status === 200);
  return await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'default', temperature: 0, ...body }),
  });
}

describe('a batcher by itself', () => {
  let redis: RedisServer;
  let gateway: GatewayServer;
  let batcher: ChildProcess;
  let output = '';

  beforeAll(async () => {
    redis = await startRedis();
    gateway = await startGateway({ redisUrl: redis.url });
    batcher = spawn('node', [RUN, 'batcher', '--max-running', '4', '--kv-memory', '256M'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, REDIS_URL: redis.url },
    });
    for (const stream of [batcher.stdout, batcher.stderr]) stream?.on('data', bytes => (output += bytes));
  });
  afterAll(async () => {
    if (batcher?.exitCode === null) batcher.kill('SIGKILL');
    await gateway?.stop();
    await redis?.stop();
  });

  it('serves the gateway, and drains when it is told to end', async () => {
    const ended = once(batcher, 'exit');
    const response = await askOnceServed(batcher, gateway, {
      messages: [{ role: 'user', content: 'What is the capital of France? Answer in one sentence.' }],
    });
    expect(await response.text()).toContain('The capital of France is Paris.');
    batcher.kill('SIGTERM');
    expect((await ended)[0]).toBe(0);
    expect(output).toContain('"msg":"draining"');
    expect((await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${gateway.key}` } })).status).toBe(200);
  });
});

it('Ctrl-C lets what runs go on to its end, for as long as the batcher was told to', async () => {
  const redis = await startRedis();
  const gateway = await startGateway({ redisUrl: redis.url });
  const args = ['--max-running', '4', '--kv-memory', '256M', '--drain-timeout-ms', '120000'];
  // In a group of its own, which a terminal tells as a whole.
  const batcher = spawn('node', [RUN, 'batcher', ...args], {
    stdio: 'ignore',
    detached: true,
    env: { ...process.env, REDIS_URL: redis.url },
  });
  try {
    const ended = once(batcher, 'exit');
    const response = await askOnceServed(batcher, gateway, {
      ...{ stream: true, stream_options: { include_usage: true }, ignore_eos: true, max_tokens: LONG_ANSWER_TOKENS },
      messages: [{ role: 'user', content: 'Count.' }],
    });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    const readTo = async (mark: string) => {
      while (!text.includes(mark)) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
      }
    };
    await readTo('"content":"');
    process.kill(-batcher.pid!, 'SIGINT');
    await readTo('[DONE]');
    expect(text).toContain(`"completion_tokens":${LONG_ANSWER_TOKENS}`);
    expect(text).not.toContain('"error"');
    expect((await ended)[0]).toBe(0);
  } finally {
    if (batcher.exitCode === null) process.kill(-batcher.pid!, 'SIGKILL');
    await gateway.stop();
    await redis.stop();
  }
});

it.each([
  ['without a Redis', [], {}, /error: REDIS_URL is missing/],
  [
    'a Redis that does not answer',
    [],
    { REDIS_URL: 'redis://:s3cret@127.0.0.1:1' },
    /error: Redis at redis:\/\/127\.0\.0\.1:1 does not answer/,
  ],
] as const)('%s: one line and exit code 2', async (_what, args, environment, complaint) => {
  const refused = await promisify(execFile)('node', [RUN, 'batcher', ...args], {
    env: { ...process.env, REDIS_URL: undefined, ...environment },
  }).catch((error: { code: number; stderr: string }) => error);
  expect(refused).toMatchObject({ code: 2 });
  expect(refused.stderr).toMatch(complaint);
  expect(refused.stderr).not.toContain('s3cret');
});
