/**
 * RedisAcl: gateway and batchers as the two users of docs/security.md, with the commands and keys that stand there and no others, over the whole of
 * what they do; and what they say of it, which holds no prompt, no answer, no key and no password.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadChat } from '../../batcher/model/chat-template.ts';
import { prepareModel } from '../../batcher/model/prepare.ts';
import { BATCHER_CARDS, queueKey, SHARED_QUEUE } from '../../shared/keys.ts';
import { type Child, startChild } from '../child.ts';
import { type GatewayServer, startGateway } from '../gateway-server.ts';
import { RedisCluster } from '../redis-cluster.ts';
import { type RedisServer, startRedis } from '../redis-server.ts';

const PROJECT = join(import.meta.dirname, '..', '..');
const PASSWORDS = { 'sluice-gateway': 'gateway-password-7c1', 'sluice-batcher': 'batcher-password-9e4' };
/** Said by nobody else, in a prompt. */
const PROMPT = 'The heron of Ulvenholm keeps 7391 pebbles.';

let server: RedisServer;
let admin: Redis;
let gateway: GatewayServer;
let modelFolder: string;
const batchers: Child[] = [];

beforeAll(async () => {
  const prepared = await prepareModel(process.env.SLUICE_TEST_GGUF ?? '');
  modelFolder = prepared.directory;
  await loadChat(prepared);
  server = await startRedis({ isDurable: false });
  admin = new Redis(server.url);
  for (const rule of rulesOf(readFileSync(join(PROJECT, 'docs', 'security.md'), 'utf8'))) await admin.call('ACL', 'SETUSER', ...rule);
  gateway = await startGateway({ redisUrl: urlOf('sluice-gateway') });
});

afterAll(async () => {
  await gateway?.stop();
  await Promise.all(batchers.map(batcher => batcher.stop()));
  admin?.disconnect();
  await server?.stop();
});

/** The words behind `ACL SETUSER` of each rule on the page. */
function rulesOf(page: string): string[][] {
  const rules = [...page.matchAll(/^ACL SETUSER (.+\n(?: .+\n)*)/gm)].map(([, rule]) => rule!.trim().split(/\s+/));
  expect(rules.map(([user]) => user)).toEqual(Object.keys(PASSWORDS));
  return rules.map(([user, ...words]) => [
    user!,
    ...words.map(word => (word.startsWith('>') ? `>${PASSWORDS[user as keyof typeof PASSWORDS]}` : word)),
  ]);
}

function urlOf(user: keyof typeof PASSWORDS): string {
  return server.url.replace('redis://', `redis://${user}:${PASSWORDS[user]}@`);
}

/** With everything that it logs. */
function spawnBatcher(id: string, redisUrl: string): Child {
  const batcher = startChild('env', [
    `REDIS_URL=${redisUrl}`,
    ...[process.execPath, join(PROJECT, 'batcher', 'main.ts'), '--model-dir', modelFolder, '--batcher-id', id],
    ...['--threads', '1', '--log-level', 'trace'],
  ]);
  batchers.push(batcher);
  return batcher;
}

/** As a user of Redis. */
async function startBatcher(id: string): Promise<Child> {
  const batcher = spawnBatcher(id, urlOf('sluice-batcher'));
  await batcher.until(async () => {
    if ((await admin.hexists(BATCHER_CARDS, id)) === 0) throw new Error('it has no card');
  });
  return batcher;
}

const headers = () => ({ authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' });

function post(more: Record<string, unknown>, moreHeaders: Record<string, string> = {}): Promise<Response> {
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { ...headers(), ...moreHeaders },
    body: JSON.stringify({ model: 'default', messages: [{ role: 'user', content: PROMPT }], temperature: 0, max_tokens: 8, ...more }),
  });
}

async function denials(): Promise<string[]> {
  const log = (await admin.call('ACL', 'LOG')) as unknown[][];
  return log.map(entry => entry.join(' ')).filter(isFault);
}

/** The driver's name and version, which a Redis that knows the command is told of, stay untold where that is denied. */
const isFault = (denial: string) => !denial.includes('client|setinfo');

describe('as the users of docs/security.md on a cluster', () => {
  it('the product answers while a slot moves and after masters and replicas have changed places, and is denied nothing', async () => {
    const cluster = await RedisCluster.start();
    for (const rule of rulesOf(readFileSync(join(PROJECT, 'docs', 'security.md'), 'utf8'))) await cluster.setUser(...rule);
    const urlFor = (user: keyof typeof PASSWORDS) => cluster.urlOf({ user, password: PASSWORDS[user] });
    const front = await startGateway({ redisUrl: urlFor('sluice-gateway') });
    const batcher = spawnBatcher('on-cluster', urlFor('sluice-batcher'));
    const ask = async () => {
      const reply = await fetch(`${front.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${front.key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'default', messages: [{ role: 'user', content: PROMPT }], max_tokens: 8, stream: true }),
      });
      if (reply.status !== 200) throw new Error(`${reply.status} ${await reply.text()}`);
      expect(await reply.text()).toContain('[DONE]');
    };
    try {
      await batcher.until(ask);
      await cluster.moveSlotOf(BATCHER_CARDS, ask);
      for (const key of [BATCHER_CARDS, queueKey('any', SHARED_QUEUE, 'wait')]) await cluster.exchangeMasterOf(key);
      await batcher.until(ask);
      expect((await cluster.denials()).filter(isFault)).toEqual([]);
    } finally {
      await front.stop();
      await batcher.stop();
      await cluster.stop();
    }
  });
});

describe('as the users of docs/security.md', () => {
  it('the product answers, streams, resumes, cancels, repeats, survives a death, drains, and is denied nothing', async () => {
    const first = await startBatcher('first');
    const answer = await post({});
    expect(answer.status, await answer.clone().text()).toBe(200);
    const said = ((await answer.json()) as { choices: { message: { content: string } }[] }).choices[0]!.message.content;

    const twice = await Promise.all(
      ['key', 'key'].map(key => post({ stream: true }, { 'idempotency-key': key }).then(reply => reply.text())),
    );
    for (const text of twice) expect(text).toContain('[DONE]');

    const left = await post({ stream: true, max_tokens: 200, ignore_eos: true }, { 'x-sluice-resumable': 'true' });
    await left.body!.getReader().read();
    const stream = `${gateway.url}/v1/streams/${left.headers.get('x-sluice-stream-id')}`;
    const resumed = await fetch(stream, { headers: headers() });
    expect(resumed.status).toBe(200);
    const cancelled = await fetch(stream, { method: 'DELETE', headers: headers() });
    expect(cancelled.status).toBe(200);
    await resumed.text();

    // A longer prompt than a block, so that prefixes are told and routed by.
    const long = { messages: [{ role: 'user', content: `${PROMPT} `.repeat(30) }] };
    for (let i = 0; i < 2; i++) expect((await post(long)).status).toBe(200);

    const second = await startBatcher('second');
    const streams = Array.from({ length: 4 }, (_, seed) => post({ stream: true, max_tokens: 40, ignore_eos: true, seed }));
    const bodies = (await Promise.all(streams)).map(reply => reply.text());
    await new Promise(resolve => setTimeout(resolve, 1_000));
    first.kill('SIGKILL');
    for (const text of await Promise.all(bodies)) expect(text).toContain('[DONE]');
    // The queue of the dead one is looked after, and goes.
    await second.until(async () => {
      if ((await admin.keys('sluice:{*}:own-first:*')).some(key => !key.endsWith('stalled-check'))) throw new Error('its queue is there');
    });

    const drained = await fetch(`${gateway.url}/admin/batchers/second/drain`, { method: 'POST', headers: headers() });
    expect(drained.status).toBe(202);
    await startBatcher('third');
    expect((await post({ max_tokens: 4 })).status).toBe(200);
    await gateway.restart();
    expect((await fetch(`${gateway.url}/v1/models`, { headers: headers() })).status).toBe(200);
    expect((await post({ messages: [] })).status).toBe(400);

    expect(await denials()).toEqual([]);

    const told = [gateway, ...batchers].map(part => part.output()).join('\n');
    expect(told).toContain('"msg":"serving"');
    expect(told).toContain('"event":"request"');
    const secrets = [...Object.values(PASSWORDS), gateway.key, gateway.keySecret, PROMPT, 'Ulvenholm', said];
    for (const secret of secrets) expect(told.includes(secret), `a log holds ${secret}`).toBe(false);
  });

  it.each([
    ['sluice-gateway', ['FLUSHALL']],
    ['sluice-gateway', ['KEYS', '*']],
    ['sluice-gateway', ['CONFIG', 'GET', '*']],
    ['sluice-gateway', ['GET', 'else']],
    ['sluice-gateway', ['EVAL', "return redis.call('GET', KEYS[1])", '1', 'else']],
    ['sluice-batcher', ['GET', 'sluice:reply:{x}:acme']],
    ['sluice-batcher', ['GET', 'sluice:idempotency:{x}']],
    ['sluice-batcher', ['SCAN', '0']],
    ['sluice-batcher', ['ACL', 'WHOAMI']],
    ['sluice-batcher', ['MONITOR']],
  ] as const)('%s may not %j', async (user, [command, ...words]) => {
    const redis = new Redis(urlOf(user));
    await expect(redis.call(command, ...words)).rejects.toThrow(/NOPERM|permission|can't access/i);
    redis.disconnect();
  });
});
