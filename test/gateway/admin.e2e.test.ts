/** Admin: keys, tenants, usage and batchers, and that nobody reaches what is another's. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { BatcherOut, KeyOut, ListOut, TenantOut } from '../../shared/admin-wire.ts';
import { drainKey } from '../../shared/keys.ts';
import { type AdminClient, adminClient } from './admin-client.ts';
import { type ErrorReply, eventually, type Stack, scripted, startStack } from './stack.ts';

const OPERATOR = 'operator-key-that-is-long-enough-0123';
let stack: Stack;
let admin: AdminClient;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_ADMIN_KEY: OPERATOR } });
  admin = adminClient(stack.gateway, OPERATOR);
});
afterAll(() => stack.stop());

const use = (key: string, body: unknown = scripted({ pieces: ['a'] })) => stack.post(body, { headers: { authorization: `Bearer ${key}` } });
const status = async (reply: Promise<Response>) => {
  const response = await reply;
  await response.text();
  return response.status;
};
const errorOf = async (reply: Promise<Response>) => {
  const response = await reply;
  return { status: response.status, ...((await response.json()) as ErrorReply).error };
};
const objectFiles = (): string[] => {
  const folder = join(stack.gateway.objectFolder, 'sluice-Tenant');
  return existsSync(folder) ? readdirSync(folder).sort() : [];
};

describe('keys', () => {
  test('are shown once, listed without it, and good at once', async () => {
    const made = await admin.makeKey({ tenant: 'shown', name: 'first', limits: { requests_per_minute: 5 } });
    expect(made.key).toMatch(new RegExp(`^sk-sluice-shown-${made.id}-[\\w-]{43}$`));
    const listed = await admin.call<ListOut<KeyOut>>('GET', '/keys?tenant=shown');
    const { key: _, ...rest } = made;
    expect(listed.data).toEqual([rest]);
    expect(JSON.stringify(listed)).not.toContain(made.key.slice(-43));
    expect(await status(use(made.key))).toBe(200);
  });

  test('revoked, expired, or of a tenant that is gone: 401, at once', async () => {
    const revoked = await admin.makeKey({ tenant: 'ends' });
    expect(await status(use(revoked.key))).toBe(200);
    await admin.call('DELETE', `/keys/${revoked.id}?tenant=ends`);
    expect(await errorOf(use(revoked.key))).toMatchObject({
      status: 401,
      code: 'invalid_api_key',
      message: expect.stringContaining('revoked'),
    });
    expect(await status(fetch(`${stack.gateway.url}/v1/models`, { headers: { authorization: `Bearer ${revoked.key}` } }))).toBe(401);
    expect(await status(use(revoked.key, '{'))).toBe(401);

    const short = await admin.makeKey({ tenant: 'ends', expires_at: Math.floor(Date.now() / 1000) + 2 });
    expect(await status(use(short.key))).toBe(200);
    await eventually('its end', async () => (await status(use(short.key))) === 401);
    expect(await errorOf(use(short.key))).toMatchObject({ message: expect.stringContaining('expired') });
    await admin.call('POST', `/keys/${short.id}`, { tenant: 'ends', expires_at: null });
    expect(await status(use(short.key))).toBe(200);

    await admin.call('DELETE', '/tenants/ends');
    expect(await status(use(short.key))).toBe(401);
    expect(await status(admin.send('GET', '/keys?tenant=ends'))).toBe(404);
    await admin.makeKey({ tenant: 'ends' });
    expect(await status(use(short.key))).toBe(401);
    expect(await admin.usage('ends')).toEqual([]);
  });

  test('do what their scopes say and no more', async () => {
    const infer = await admin.makeKey({ tenant: 'scoped' });
    const manage = await admin.makeKey({ tenant: 'scoped', scopes: ['admin'] });
    expect(await status(use(infer.key))).toBe(200);
    expect(await errorOf(use(manage.key))).toMatchObject({ status: 403, code: 'insufficient_scope', type: 'permission_error' });
    expect(await status(adminClient(stack.gateway, infer.key).send('GET', '/keys'))).toBe(403);
    expect(await status(adminClient(stack.gateway, manage.key).send('GET', '/keys'))).toBe(200);
    // The operator's key is nobody's: it buys no tokens.
    expect(await status(use(OPERATOR))).toBe(403);
  });

  test('the development key does everything, as tenant dev', async () => {
    expect(await status(use(stack.gateway.key))).toBe(200);
    const dev = adminClient(stack.gateway);
    await eventually('its usage', async () => (await dev.usage('dev')).some(row => row.key_id === 'development' && row.requests > 0));
    const tenants = await dev.call<ListOut<TenantOut>>('GET', '/tenants?limit=100');
    expect(tenants.data.map(tenant => tenant.name)).toContain('dev');
  });
});

test('a forged key is a 401 that creates no object', async () => {
  const { key } = await admin.makeKey({ tenant: 'genuine' });
  const before = objectFiles();
  expect(before.length).toBeGreaterThan(0);
  const mac = key.slice(-43);
  const forged = Array.from({ length: 50 }, (_, i) => `sk-sluice-forged${i}-abc-${mac}`);
  for (const one of [...forged, `${key.slice(0, -1)}${key.endsWith('A') ? 'E' : 'A'}`, 'sk-sluice-genuine--', 'x'.repeat(5_000)]) {
    expect(await status(use(one))).toBe(401);
    expect(await status(adminClient(stack.gateway, one).send('GET', '/tenants'))).toBe(401);
  }
  expect(objectFiles()).toEqual(before);
});

describe('case 39 and its kind: a tenant sees and manages its own only', () => {
  test('usage, keys and tenants', async () => {
    const a = await admin.makeKey({ tenant: 'iso-a', scopes: ['infer', 'admin'] });
    const b = await admin.makeKey({ tenant: 'iso-b', scopes: ['infer', 'admin'] });
    await (await use(b.key)).text();
    await eventually('b’s usage', async () => (await admin.usage('iso-b')).length === 1);
    const asA = adminClient(stack.gateway, a.key);
    expect(await asA.usage('iso-a')).toEqual([]);
    const others: [string, string, unknown?][] = [
      ['GET', '/usage?tenant=iso-b'],
      ['GET', '/usage?tenant=nobody'],
      ['GET', '/keys?tenant=iso-b'],
      ['GET', '/tenants/iso-b'],
      ['POST', '/keys', { tenant: 'iso-b' }],
      ['POST', `/keys/${b.id}`, { tenant: 'iso-b', limits: { requests_per_minute: 1 } }],
      ['DELETE', `/keys/${b.id}?tenant=iso-b`],
      ['DELETE', '/tenants/iso-b'],
      ['DELETE', '/tenants/iso-a'],
      ['POST', '/tenants', { name: 'iso-a', limits: { requests_per_minute: 1_000 } }],
      ['GET', '/batchers'],
      ['POST', '/batchers/source-test-model/drain'],
    ];
    for (const [method, path, body] of others) {
      expect({ path, ...(await errorOf(asA.send(method, path, body))) }).toMatchObject({ path, status: 403, code: 'insufficient_scope' });
    }
    // Under its own name the other's key does not exist.
    expect(await status(asA.send('DELETE', `/keys/${b.id}?tenant=iso-a`))).toBe(404);
    expect(await status(asA.send('POST', `/keys/${b.id}`, { tenant: 'iso-a', name: 'mine' }))).toBe(404);
    expect(await status(use(b.key))).toBe(200);
    expect((await asA.call<ListOut<TenantOut>>('GET', '/tenants')).data.map(tenant => tenant.name)).toEqual(['iso-a']);
    expect((await asA.call<ListOut<KeyOut>>('GET', '/keys')).data.map(key => key.id)).toEqual([a.id]);
  });

  test('limits: one that is at its end is no other’s matter', async () => {
    const a = await admin.makeKey({ tenant: 'full', limits: { requests_per_minute: 1 } });
    const b = await admin.makeKey({ tenant: 'empty', limits: { requests_per_minute: 1 } });
    await (await use(a.key)).text();
    expect(await status(use(a.key))).toBe(429);
    const first = await use(b.key);
    expect([first.status, first.headers.get('x-ratelimit-remaining-requests')]).toEqual([200, '0']);
  });
});

test('tenants: made, changed, listed in pages, taken away', async () => {
  expect(await status(admin.send('POST', '/tenants', { name: 'page-a', limits: { tokens_per_day: 5 } }))).toBe(201);
  expect(await status(admin.send('POST', '/tenants', { name: 'page-a', limits: { tokens_per_minute: 7 } }))).toBe(200);
  await admin.call('POST', '/tenants', { name: 'page-b' });
  expect((await admin.call<TenantOut>('GET', '/tenants/page-a')).limits).toEqual({
    requests_per_minute: null,
    tokens_per_minute: 7,
    concurrent_requests: null,
    tokens_per_day: 5,
  });
  const names: string[] = [];
  for (let after = '', hasMore = true; hasMore; after = names.at(-1)!) {
    const page = await admin.call<ListOut<TenantOut>>('GET', `/tenants?limit=2&after=${after}`);
    names.push(...page.data.map(tenant => tenant.name));
    hasMore = page.has_more;
  }
  expect(names).toEqual([...new Set(names)].sort());
  expect(names).toEqual(expect.arrayContaining(['dev', 'page-a', 'page-b']));
  await admin.call('DELETE', '/tenants/page-b');
  expect(await status(admin.send('GET', '/tenants/page-b'))).toBe(404);
});

/** method, path, body, status, code, param */
const REFUSALS: [string, string, unknown, number, string, string | null][] = [
  ['POST', '/keys', '{', 400, 'invalid_json', null],
  ['POST', '/keys', '[]', 400, 'invalid_json', null],
  ['POST', '/keys', `{"tenant":"${'x'.repeat(20_000)}"}`, 413, 'body_too_large', null],
  ['POST', '/keys', {}, 400, 'missing_required_parameter', 'tenant'],
  ['POST', '/keys', { tenant: 'Acme' }, 400, 'invalid_value', 'tenant'],
  ['POST', '/keys', { tenant: '-acme' }, 400, 'invalid_value', 'tenant'],
  ['POST', '/keys', { tenant: 'a b' }, 400, 'invalid_value', 'tenant'],
  ['POST', '/keys', { tenant: 'x'.repeat(33) }, 400, 'invalid_value', 'tenant'],
  ['POST', '/keys', { tenant: 'a', scopes: [] }, 400, 'invalid_value', 'scopes'],
  ['POST', '/keys', { tenant: 'a', scopes: ['root'] }, 400, 'invalid_value', 'scopes[0]'],
  ['POST', '/keys', { tenant: 'a', expires_at: 5 }, 400, 'invalid_value', 'expires_at'],
  ['POST', '/keys', { tenant: 'a', limits: { rpm: 5 } }, 400, 'invalid_value', 'limits.rpm'],
  ['POST', '/keys', { tenant: 'a', limits: { requests_per_minute: 0 } }, 400, 'invalid_value', 'limits.requests_per_minute'],
  ['POST', '/keys', { tenant: 'a', limits: { tokens_per_minute: 1.5 } }, 400, 'invalid_value', 'limits.tokens_per_minute'],
  ['POST', '/keys', { tenant: 'a', limits: { tokens_per_day: '9' } }, 400, 'invalid_value', 'limits.tokens_per_day'],
  ['POST', '/keys', { tenant: 'a', key: 'mine' }, 400, 'invalid_value', 'key'],
  ['POST', '/keys/none', { tenant: 'dev' }, 404, 'not_found', null],
  ['DELETE', '/keys/none?tenant=dev', undefined, 404, 'not_found', null],
  ['DELETE', '/keys/none', undefined, 400, 'missing_required_parameter', 'tenant'],
  ['GET', '/keys?tenant=nobody', undefined, 404, 'not_found', 'tenant'],
  ['GET', '/keys?tenant=%00', undefined, 400, 'invalid_value', 'tenant'],
  ['POST', '/tenants', { name: 'a', limits: null }, 400, 'invalid_value', 'limits'],
  ['GET', '/tenants?limit=0', undefined, 400, 'invalid_value', 'limit'],
  ['GET', '/tenants?limit=101', undefined, 400, 'invalid_value', 'limit'],
  ['DELETE', '/tenants/nobody', undefined, 404, 'not_found', 'tenant'],
  ['GET', '/usage?tenant=dev&from=2026-02-30', undefined, 400, 'invalid_value', 'from'],
  ['GET', '/usage?tenant=dev&from=yesterday', undefined, 400, 'invalid_value', 'from'],
  ['GET', '/usage?tenant=dev&from=2026-02-02&to=2026-02-01', undefined, 400, 'invalid_value', 'from'],
  ['GET', '/usage?tenant=dev&limit=1e9', undefined, 400, 'invalid_value', 'limit'],
  ['POST', '/batchers/none/drain', undefined, 404, 'not_found', null],
  ['PATCH', '/keys', undefined, 405, 'method_not_allowed', null],
  ['GET', '/nothing', undefined, 404, 'not_found', null],
];

test.each(REFUSALS)('refused: %s %s %j', async (method, path, body, expected, code, param) => {
  const error = await errorOf(admin.send(method, path, body));
  expect({ status: error.status, code: error.code, param: error.param }).toEqual({ status: expected, code, param });
  expect(error.message.length).toBeGreaterThan(10);
});

test('without a secret no key is made, and the operator is told', async () => {
  await stack.gateway.restart({ SLUICE_KEY_SECRET: '' });
  expect(await errorOf(admin.send('POST', '/keys', { tenant: 'a' }))).toMatchObject({ status: 501, code: 'not_configured' });
  await stack.gateway.restart({ SLUICE_KEY_SECRET: stack.gateway.keySecret });
});

test('batchers are listed, and one is asked to drain', async () => {
  const { data } = await admin.call<ListOut<BatcherOut>>('GET', '/batchers');
  expect(data).toMatchObject([{ object: 'batcher', id: 'source-test-model', model: 'test-model', state: 'serving' }]);
  const asked = await admin.send('POST', '/batchers/source-test-model/drain');
  expect([asked.status, ((await asked.json()) as BatcherOut).state]).toEqual([202, 'draining']);
  expect(await stack.source.redis.get(drainKey('source-test-model'))).toBe(String(stack.source.card.startedAt));
});
