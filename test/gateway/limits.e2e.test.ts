/** Limits on the running gateway: what is let through, what the headers say, what a refusal costs, and what survives a restart. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type AdminClient, adminClient } from './admin-client.ts';
import { readSse } from './sse-client.ts';
import { type ErrorReply, eventually, type Stack, scripted, startStack } from './stack.ts';

let stack: Stack;
let admin: AdminClient;
beforeAll(async () => {
  stack = await startStack({ rowCount: 256, bindings: { SLUICE_LEASE_MS: '2000', SLUICE_RESERVED_TOKENS: '64' } });
  admin = adminClient(stack.gateway);
});
afterAll(() => stack.stop());

let tenantCount = 0;
async function newKey(limits: Record<string, number> = {}, tenantLimits: Record<string, number> = {}) {
  const tenant = `t${tenantCount++}`;
  await admin.call('POST', '/tenants', { name: tenant, limits: tenantLimits });
  const { key, id } = await admin.makeKey({ tenant, limits });
  const post = (body: unknown, init?: RequestInit) =>
    stack.post(body, { ...init, headers: { ...init?.headers, authorization: `Bearer ${key}` } });
  return { tenant, key, id, post };
}

const NAMES = ['limit-requests', 'limit-tokens', 'remaining-requests', 'remaining-tokens', 'reset-requests', 'reset-tokens'];
const rateHeaders = (response: Response) => Object.fromEntries(NAMES.map(name => [name, response.headers.get(`x-ratelimit-${name}`)]));
const remaining = (response: Response) => Number(response.headers.get('x-ratelimit-remaining-requests'));
const errorOf = async (response: Response) => ((await response.json()) as ErrorReply).error;
const count = async (tenant: string) => (await admin.usage(tenant)).reduce((sum, row) => sum + row.requests, 0);

describe('case 35: the six headers', () => {
  test('are there on whole and streamed replies alike, and fall by one', async () => {
    const { post } = await newKey({ requests_per_minute: 10, tokens_per_minute: 10_000 });
    const whole = await post(scripted({ pieces: ['a'] }));
    await whole.text();
    const streamed = await post(scripted({ pieces: ['a'] }, { stream: true }));
    await readSse(streamed);
    for (const headers of [rateHeaders(whole), rateHeaders(streamed)]) {
      expect(headers).toMatchObject({ 'limit-requests': '10', 'limit-tokens': '10000' });
      expect(headers['reset-requests']).toMatch(/^(\d+m)?\d+(\.\d+)?m?s$/);
      expect(Number(headers['remaining-tokens'])).toBeLessThan(10_000);
    }
    expect([remaining(whole), remaining(streamed)]).toEqual([9, 8]);
  });

  test('are there on errors, on 429, and for a tenant without limits', async () => {
    const { post, key } = await newKey({ requests_per_minute: 1 });
    const unreadable = await post('{');
    expect([unreadable.status, remaining(unreadable)]).toEqual([400, 1]);
    const models = await fetch(`${stack.gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
    expect([models.status, remaining(models)]).toEqual([200, 1]);
    const lost = await fetch(`${stack.gateway.url}/v1/nothing`, { headers: { authorization: `Bearer ${key}` } });
    expect([lost.status, remaining(lost)]).toEqual([404, 1]);
    expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
    const refused = await post(scripted({ pieces: ['a'] }, { stream: true }));
    expect([refused.status, remaining(refused)]).toEqual([429, 0]);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(50);
    expect(await errorOf(refused)).toMatchObject({ code: 'rate_limit_exceeded', type: 'rate_limit_error', param: null });
    const free = await (await newKey()).post(scripted({ pieces: ['a'] }));
    expect(rateHeaders(free)).toMatchObject({ 'limit-requests': '1000000000', 'remaining-requests': '999999999' });
  });

  test('case 30: a preflight needs no key and is not counted', async () => {
    const { post } = await newKey({ requests_per_minute: 1 });
    for (let i = 0; i < 5; i++) {
      const preflight = await fetch(`${stack.gateway.url}/v1/chat/completions`, {
        method: 'OPTIONS',
        headers: {
          origin: 'https://a.example',
          'access-control-request-method': 'POST',
          'access-control-request-headers': 'authorization',
        },
      });
      expect(preflight.status).toBe(204);
    }
    const first = await post(scripted({ pieces: ['a'] }));
    expect([first.status, first.headers.get('access-control-allow-origin')]).toEqual([200, '*']);
    const refused = await post(scripted({ pieces: ['a'] }));
    expect([refused.status, refused.headers.get('access-control-allow-origin')]).toEqual([429, '*']);
  });
});

test('200 at once against 1,000 tokens a minute: at most 1,000 are let through, headers never fall below 0, refusals cost nothing', async () => {
  const { post, tenant } = await newKey({}, { tokens_per_minute: 1_000 });
  const body = scripted({ pieces: ['a', 'b', 'c'] }, { max_tokens: 40 });
  const replies = await Promise.all(Array.from({ length: 200 }, () => post(body)));
  let used = 0;
  let refusedCount = 0;
  for (const reply of replies) {
    expect(Number(reply.headers.get('x-ratelimit-remaining-tokens'))).toBeGreaterThanOrEqual(0);
    expect(remaining(reply)).toBeGreaterThanOrEqual(0);
    if (reply.status === 200) {
      used += ((await reply.json()) as { usage: { total_tokens: number } }).usage.total_tokens;
    } else {
      refusedCount += 1;
      expect(reply.status).toBe(429);
      const wait = Number(reply.headers.get('retry-after'));
      expect(wait >= 1 && wait <= 62).toBe(true);
      await reply.text();
    }
  }
  const admittedCount = 200 - refusedCount;
  expect(used).toBeLessThanOrEqual(1_000);
  expect(admittedCount).toBeGreaterThan(0);
  expect(refusedCount).toBeGreaterThan(0);
  // What was reserved beyond use comes back; what was refused is nowhere.
  await eventually('all to be settled', async () => (await count(tenant)) === admittedCount);
  const rows = await admin.usage(tenant);
  expect(rows.reduce((sum, row) => sum + row.prompt_tokens + row.completion_tokens, 0)).toBe(used);
});

describe('a refused request costs nothing', () => {
  test.each([
    ['an unknown model', { ...scripted({ pieces: ['a'] }), model: 'no-such-model' }, 404],
    ['a prompt that the batcher refuses', scripted({ error: { code: 'context_length_exceeded', message: 'too long' } }), 400],
    ['a failure before the first token', scripted({ error: { code: 'generation_failed', message: 'broken' } }), 500],
  ])('%s', async (_, body, status) => {
    const { post, tenant } = await newKey({ requests_per_minute: 1, concurrent_requests: 1 });
    for (let i = 0; i < 3; i++) {
      const refused = await post(body);
      await refused.text();
      expect(refused.status).toBe(status);
      await eventually('its room to be free again', async () => {
        const look = await post('{');
        await look.text();
        return remaining(look) === 1;
      });
    }
    expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
    await eventually('the ledger', async () => (await count(tenant)) === 1);
  });
});

test('a request that alone is more than the limit is told so; one of exactly the limit goes through', async () => {
  const { post } = await newKey({ tokens_per_minute: 200 });
  const never = await post(scripted({ pieces: ['a'] }, { max_tokens: 500 }));
  expect([never.status, never.headers.get('retry-after')]).toEqual([400, null]);
  expect(await errorOf(never)).toMatchObject({ code: 'request_exceeds_limit', param: 'max_tokens' });
  const open = await post(scripted({ pieces: ['a'] }));
  expect(open.status).toBe(200);
});

test('without max_tokens the answer is bounded by what is reserved', async () => {
  const { post } = await newKey({ tokens_per_minute: 1_000 });
  const reply = await post(scripted({ pieces: ['a'], repeat: 500 }));
  expect(((await reply.json()) as { usage: { completion_tokens: number } }).usage.completion_tokens).toBe(64);
});

test('a prompt with more tokens than estimated gets the rest, or goes no further', async () => {
  // The token source counts every character a token; the estimate is a third of that.
  const { post } = await newKey({ tokens_per_minute: 700 });
  const text = (length: number) => ({ ...scripted({}), max_tokens: 10, messages: [{ role: 'user', content: 'x'.repeat(length) }] });
  const fits = await post(text(500));
  expect([fits.status, ((await fits.json()) as { usage: { prompt_tokens: number } }).usage.prompt_tokens]).toEqual([200, 500]);
  const other = await newKey({ tokens_per_minute: 700 });
  const grown = await other.post(text(1_500));
  expect(grown.status).toBe(400);
  expect(await errorOf(grown)).toMatchObject({ code: 'request_exceeds_limit' });
  expect((await other.post(text(500))).status).toBe(200);
});

test('concurrent requests: one more is refused while they run, and let in when one has ended or its client has left', async () => {
  const { post } = await newKey({ concurrent_requests: 2 });
  const endless = scripted({ pieces: ['on '], repeat: 5_000, stepMs: 20 }, { stream: true });
  const leaving = [new AbortController(), new AbortController()];
  for (const { signal } of leaving) expect((await post(endless, { signal })).status).toBe(200);
  const refused = await post(endless);
  expect([refused.status, Number(refused.headers.get('retry-after')) >= 1]).toEqual([429, true]);
  expect((await errorOf(refused)).message).toContain('concurrent requests');
  for (const client of leaving) client.abort();
  await eventually('a place', async () => {
    const next = await post(scripted({ pieces: ['a'] }));
    await next.text();
    return next.status === 200;
  });
});

test('one after the other without a pause: what the last one gave back is there for the next', async () => {
  const { post } = await newKey({ concurrent_requests: 1, tokens_per_minute: 3_000 });
  for (let i = 0; i < 15; i++) {
    const reply = await post(scripted({ pieces: ['a'] }, { max_tokens: 2_500, stream: i % 2 === 0 }));
    await reply.text();
    expect({ i, status: reply.status }).toEqual({ i, status: 200 });
  }
});

test('a flood over the limit is refused alike, and the limit is what it says again when it was raised', async () => {
  const { post, tenant, id } = await newKey({ requests_per_minute: 1 });
  expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
  const flood = await Promise.all(Array.from({ length: 100 }, () => post(scripted({ pieces: ['a'] }))));
  for (const refused of flood) {
    expect([refused.status, rateHeaders(refused)]).toEqual([
      429,
      { ...rateHeaders(flood[0]!), 'reset-requests': expect.any(String), 'reset-tokens': expect.any(String) },
    ]);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(50);
    expect(await errorOf(refused)).toMatchObject({ code: 'rate_limit_exceeded', type: 'rate_limit_error' });
  }
  await admin.call('POST', `/keys/${id}`, { tenant, limits: { requests_per_minute: 2 } });
  expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
});

test('usage: a day, key and model each; an early leaver pays for what was done', async () => {
  const { post, tenant, id } = await newKey();
  const second = await admin.makeKey({ tenant });
  await (await post(scripted({ pieces: ['a', 'b'] }))).text();
  await (await post(scripted({ pieces: ['a', 'b', 'c'] }, { stream: true }))).text();
  await (await stack.post(scripted({ pieces: ['a'] }), { headers: { authorization: `Bearer ${second.key}` } })).text();
  const client = new AbortController();
  const streamed = await post(scripted({ pieces: ['x '], repeat: 5_000, stepMs: 10 }, { stream: true }), { signal: client.signal });
  const reader = streamed.body!.getReader();
  for (let i = 0; i < 5; i++) await reader.read();
  client.abort();
  await reader.cancel().catch(() => undefined);
  await eventually('four requests', async () => (await count(tenant)) === 4);
  const rows = await admin.usage(tenant);
  expect(rows.map(row => [row.key_id, row.model, row.requests])).toEqual(
    [
      [id, 'test-model', 3],
      [second.id, 'test-model', 1],
    ].sort((a, b) => (a[0]! < b[0]! ? -1 : 1)),
  );
  const mine = rows.find(row => row.key_id === id)!;
  expect(mine.date).toBe(new Date().toISOString().slice(0, 10));
  expect(mine.completion_tokens).toBeGreaterThan(5);
  expect(mine.completion_tokens).toBeLessThan(5_000);
});

test('limits can be changed and taken away while requests come', async () => {
  const { post, tenant, id } = await newKey({ requests_per_minute: 1 });
  expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
  expect((await post(scripted({ pieces: ['a'] }))).status).toBe(429);
  await admin.call('POST', `/keys/${id}`, { tenant, limits: { requests_per_minute: 2 } });
  expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
  expect((await post(scripted({ pieces: ['a'] }))).status).toBe(429);
  await admin.call('POST', `/keys/${id}`, { tenant, limits: { requests_per_minute: null } });
  expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
});

describe('a restart', () => {
  test('keeps keys, limits, the last minute, the day and the ledger', async () => {
    const minute = await newKey({ requests_per_minute: 2 });
    const day = await newKey({}, { tokens_per_day: 300 });
    await (await minute.post(scripted({ pieces: ['a'] }))).text();
    await (await day.post(scripted({ pieces: ['a'] }, { max_tokens: 100 }))).text();
    await eventually('both to be settled', async () => (await count(minute.tenant)) === 1 && (await count(day.tenant)) === 1);
    const before = [await admin.usage(minute.tenant), await admin.usage(day.tenant)];
    await stack.gateway.restart();
    expect([await admin.usage(minute.tenant), await admin.usage(day.tenant)]).toEqual(before);
    const second = await minute.post(scripted({ pieces: ['a'] }));
    expect([second.status, remaining(second)]).toEqual([200, 0]);
    expect((await minute.post(scripted({ pieces: ['a'] }))).status).toBe(429);
    const tomorrow = await day.post(scripted({ pieces: ['a'] }, { max_tokens: 250 }));
    expect((await errorOf(tomorrow)).message).toContain('tokens per day');
  });

  test('frees what was open when the lease of the dead broker has run out', async () => {
    const { post, tenant } = await newKey({ concurrent_requests: 1 });
    const endless = scripted({ pieces: ['on '], repeat: 100_000, stepMs: 50 }, { stream: true });
    const cut = await post(endless);
    expect(cut.status).toBe(200);
    // What has been asked for is written.
    await admin.usage(tenant);
    const rest = cut.text().catch(() => undefined);
    await stack.gateway.restart();
    await rest;
    // Whether its broker goes on with it or has let it lapse, the place is free in the end and nothing is counted twice.
    await eventually('the place to be free', async () => {
      const next = await post(scripted({ pieces: ['a'] }));
      await next.text();
      return next.status === 200;
    });
    await eventually('both to be settled', async () => (await count(tenant)) === 2);
  });

  test('with another secret: old keys are good while it is the one before, and no longer', async () => {
    const { post } = await newKey();
    const rotated = { SLUICE_KEY_SECRET: 'n'.repeat(40), SLUICE_KEY_SECRET_PREVIOUS: stack.gateway.keySecret };
    await stack.gateway.restart(rotated);
    expect((await post(scripted({ pieces: ['a'] }))).status).toBe(200);
    expect((await (await newKey()).post(scripted({ pieces: ['a'] }))).status).toBe(200);
    await stack.gateway.restart({ SLUICE_KEY_SECRET_PREVIOUS: '' });
    expect((await post(scripted({ pieces: ['a'] }))).status).toBe(401);
    await stack.gateway.restart({ SLUICE_KEY_SECRET: stack.gateway.keySecret });
  });
});
