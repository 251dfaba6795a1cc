/** Admission, fairness, routing by prefix, the response cache and coalescing: the gateway on raw workerd with token sources for batchers. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PrefixOutbox } from '../../batcher/prefix-outbox.ts';
import { connectRedis } from '../../batcher/redis.ts';
import { ownQueue, queueKey, SHARED_QUEUE } from '../../shared/keys.ts';
import { prefixHashes } from '../../shared/prefix.ts';
import { readSse } from './sse-client.ts';
import { type ErrorReply, eventually, type Stack, scripted, startStack } from './stack.ts';
import { startTokenSource, type TokenSource } from './token-source.ts';

const MODEL = 'test-model';
const ADMIN_KEY = 'an-administrator-key-of-thirty-two-letters-or-more';

let stack: Stack;
let source: TokenSource;
const keys = new Map<string, string>();

beforeAll(async () => {
  stack = await startStack({
    rowCount: 1,
    bindings: {
      ...{ SLUICE_ADMIN_KEY: ADMIN_KEY, SLUICE_KEY_SECRET: 'a-secret-of-thirty-two-letters-or-more-for-tests' },
      ...{ SLUICE_SCALE_FROM_ZERO_WAIT_MS: '8000', SLUICE_MAX_QUEUED_TOKENS: '200000', SLUICE_HEARTBEAT_MS: '200' },
    },
  });
  source = stack.source;
  for (const tenant of ['flood', 'light']) {
    const reply = await fetch(`${stack.gateway.url}/admin/keys`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify({ tenant }),
    });
    keys.set(tenant, ((await reply.json()) as { key: string }).key);
  }
});
afterAll(() => stack.stop());
beforeEach(() => {
  source.resume();
  source.taken.length = 0;
});
afterEach(async () => {
  Object.assign(source.card, { runningCount: 0, waitingCount: 0, prefillTokensPerSecond: 0, decodeTokensPerSecond: 0, state: 'serving' });
  await source.publish();
});

const as = (tenant: string): RequestInit => ({ headers: { authorization: `Bearer ${keys.get(tenant)}` } });
const withHeaders = (headers: Record<string, string>, tenant?: string): RequestInit => ({
  headers: { ...(tenant !== undefined && { authorization: `Bearer ${keys.get(tenant)}` }), ...headers },
});
const waitingCount = (queueName: string) => source.redis.zcard(queueKey(MODEL, queueName, 'prioritized'));

interface Completion {
  id: string;
  model: string;
  choices: { message: { content: string }; finish_reason: string }[];
  usage: { prompt_tokens: number; completion_tokens: number };
}

describe('admission', () => {
  /** From now on the gateway has measured answers of this length, and sees every row taken. */
  async function busy(decodeTokensPerSecond: number): Promise<void> {
    await (await stack.post(scripted({ pieces: Array<string>(20).fill('a ') }))).json();
    Object.assign(source.card, { runningCount: 1, prefillTokensPerSecond: 1_000, decodeTokensPerSecond });
    await source.publish();
    // Cards are read at most half a second old.
    await new Promise(resolve => setTimeout(resolve, 600));
  }

  test('429 with the time to wait for a request that may not wait so long, and 200 for one that may', async () => {
    await busy(10);
    source.taken.length = 0;
    const refused = await stack.post(scripted({ pieces: ['a'] }), withHeaders({ 'x-sluice-max-wait-ms': '500' }));
    expect(refused.status).toBe(429);
    const { error } = (await refused.json()) as ErrorReply;
    expect(error).toMatchObject({ code: 'queue_full', type: 'rate_limit_error' });
    expect(error.message).toMatch(/would wait about [\d.]+ s/);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    expect(source.taken).toEqual([]);
    expect((await stack.post(scripted({ pieces: ['a'] }), withHeaders({ 'x-sluice-max-wait-ms': '60000' }))).status).toBe(200);
  });

  test('a stream is refused by status as well', async () => {
    await busy(10);
    const refused = await stack.post(scripted({ pieces: ['a'] }, { stream: true }), withHeaders({ 'x-sluice-max-wait-ms': '0' }));
    expect(refused.status).toBe(429);
    expect(refused.headers.get('content-type')).toContain('application/json');
  });

  test('what is refused counts to nobody’s limits', async () => {
    await busy(10);
    const remaining = async (reply: Response) => {
      await reply.body?.cancel();
      return Number(reply.headers.get('x-ratelimit-remaining-requests'));
    };
    const before = await remaining(await fetch(`${stack.gateway.url}/v1/models`, as('flood')));
    for (let i = 0; i < 3; i++) {
      expect((await stack.post(scripted({}), withHeaders({ 'x-sluice-max-wait-ms': '1' }, 'flood'))).status).toBe(429);
    }
    await eventually(
      'the reservations are given back',
      async () => (await remaining(await fetch(`${stack.gateway.url}/v1/models`, as('flood')))) === before,
    );
  });

  test('the queue is bounded in tokens, for each at the place that it would have', async () => {
    await source.hold();
    const pending = new AbortController();
    const long = { max_tokens: 50_000 };
    // Measured answers are short, so that it is the prompts that fill the queue.
    const content = 'x'.repeat(90_000);
    const body = { model: 'default', messages: [{ role: 'user', content }], ...long };
    const statuses: number[] = [];
    const sent = Array.from({ length: 40 }, () =>
      stack.post(body, { ...as('flood'), signal: pending.signal }).then(
        reply => statuses.push(reply.status),
        () => undefined,
      ),
    );
    await eventually('some are refused', () => statuses.length > 0);
    expect(new Set(statuses)).toEqual(new Set([429]));
    // The flood fills its own part of the queue: another tenant's request has its place at the front.
    const light = stack.post(scripted({ pieces: ['fine'] }), as('light'));
    await eventually('the light one waits', async () => (await waitingCount(SHARED_QUEUE)) + statuses.length === 41);
    source.resume();
    pending.abort();
    expect((await light).status).toBe(200);
    await Promise.all(sent);
    await eventually('the queue is empty', async () => (await waitingCount(SHARED_QUEUE)) === 0);
  });

  test.each(['-1', 'soon', '1.5', '999999999'])('400 for a wait of %s', async wait => {
    const reply = await stack.post(scripted({ pieces: ['a'] }), withHeaders({ 'x-sluice-max-wait-ms': wait }));
    expect(reply.status).toBe(400);
    expect(((await reply.json()) as ErrorReply).error).toMatchObject({ code: 'invalid_value', param: 'x-sluice-max-wait-ms' });
  });

  test('a request is held until a batcher serves, not for a model that nobody knows', async () => {
    source.card.state = 'draining';
    await source.publish();
    await new Promise(resolve => setTimeout(resolve, 600));
    const held = stack.post(scripted({ pieces: ['late'] }));
    await new Promise(resolve => setTimeout(resolve, 500));
    source.card.state = 'serving';
    await source.publish();
    expect((await held).status).toBe(200);
    expect((await stack.post({ ...scripted({}), model: 'no-such-model' })).status).toBe(404);
  });
});

describe('fairness', () => {
  test('a light tenant’s request is taken before the rest of a flood that was there first', async () => {
    await source.hold();
    const flood = Array.from({ length: 12 }, (_, i) => stack.post(scripted({ pieces: [`${i}`] }), as('flood')));
    await eventually('the flood waits', async () => (await waitingCount(SHARED_QUEUE)) === 12);
    const light = stack.post(scripted({ pieces: ['light'] }), as('light'));
    await eventually('the light one too', async () => (await waitingCount(SHARED_QUEUE)) === 13);
    source.resume();
    const { id } = (await (await light).json()) as Completion;
    await Promise.all(flood.map(async reply => (await reply).json()));
    expect(source.taken.indexOf(id)).toBe(0);
    expect(source.taken).toHaveLength(13);
  });
});

describe('routing', () => {
  const messages = [{ role: 'user' as const, content: 'The same long beginning, again and again. '.repeat(60) }];
  const body = { model: 'default', messages };
  let other: TokenSource;
  let redis: ReturnType<typeof connectRedis>;
  let pending: AbortController;

  beforeAll(async () => {
    other = await startTokenSource({ redisUrl: stack.redis.url, batcherId: 'other', rowCount: 1 });
    redis = connectRedis(stack.redis.url);
    const hashes = prefixHashes({ kind: 'chat', messages }, 'flood');
    await new PrefixOutbox(redis).send([
      { batcherId: 'other', epoch: 1, seq: 0, added: hashes.map((hash, i) => [hash, 60 * (i + 1)] as const), evicted: [] },
    ]);
  });
  beforeEach(async () => {
    pending = new AbortController();
    await source.hold();
    await other.hold();
    other.taken.length = 0;
    for (const { card, publish } of [source, other]) {
      Object.assign(card, { prefillTokensPerSecond: 500, decodeTokensPerSecond: 50 });
      await publish();
    }
    // The cards that the gateway goes by are half a second old at most; those from before tell of what waited in the test before.
    await new Promise(resolve => setTimeout(resolve, 600));
  });
  afterEach(async () => {
    pending.abort();
    await eventually(
      'the queues are empty',
      async () => (await waitingCount(ownQueue('other'))) + (await waitingCount(SHARED_QUEUE)) === 0,
    );
  });
  afterAll(async () => {
    await other.stop();
    redis.disconnect();
    await stack.source.redis.del('sluice:batchers');
    await source.publish();
  });

  /** Where a request of this tenant waits. */
  async function waits(tenant: string, prompt: object = body): Promise<'own' | 'shared'> {
    const before = { own: await waitingCount(ownQueue('other')), shared: await waitingCount(SHARED_QUEUE) };
    void stack.post(prompt, { ...as(tenant), signal: pending.signal }).catch(() => undefined);
    let where: 'own' | 'shared' | undefined;
    await eventually('it waits', async () => {
      if ((await waitingCount(ownQueue('other'))) > before.own) where = 'own';
      if ((await waitingCount(SHARED_QUEUE)) > before.shared) where = 'shared';
      return where !== undefined;
    });
    return where!;
  }

  test('the next turn waits for the batcher that holds the conversation, and is answered by it', async () => {
    const turn = { ...body, messages: [...messages, { role: 'assistant', content: 'yes' }, { role: 'user', content: 'go on' }] };
    expect(await waits('flood', turn)).toBe('own');
    expect(await source.redis.smembers(`sluice:{${MODEL}}:own-queues`)).toEqual(['other']);
    pending.abort();
    source.resume();
    other.resume();
    await eventually('nothing waits', async () => (await waitingCount(ownQueue('other'))) + (await waitingCount(SHARED_QUEUE)) === 0);
    // Until the gateway has read a card that tells so, the shared queue may be the shorter way.
    await other.publish();
    await new Promise(resolve => setTimeout(resolve, 600));
    const answer = (await (await stack.post(turn, as('flood'))).json()) as Completion;
    expect(answer.choices[0]!.message.content).toBe('go on');
    expect(other.taken.includes(answer.id)).toBe(true);
  });

  test('case 39: not another tenant’s, whatever it says of itself', async () => {
    expect(await waits('flood')).toBe('own');
    expect(await waits('light')).toBe('shared');
    expect(await waits('light', { ...body, user: 'flood', cache_salt: 'flood', tenant: 'flood' })).toBe('shared');
  });

  test('not to a batcher that drains or is silent', async () => {
    expect(await waits('flood')).toBe('own');
    other.card.state = 'draining';
    await other.publish();
    await new Promise(resolve => setTimeout(resolve, 600));
    expect(await waits('flood')).toBe('shared');
    other.card.state = 'serving';
    await other.publish();
  });

  test('a client that leaves takes its job out of the batcher’s own queue', async () => {
    expect(await waits('flood')).toBe('own');
    pending.abort();
    await eventually('it is gone', async () => (await waitingCount(ownQueue('other'))) === 0);
  });
});

describe('response cache', () => {
  const greedy = (script: Parameters<typeof scripted>[0], more = {}) => scripted(script, { temperature: 0, ...more });
  const status = (reply: Response) => reply.headers.get('x-sluice-cache');
  /** The answer is kept a moment after it was given. */
  async function untilHit(body: object, init?: RequestInit): Promise<Response> {
    let reply: Response | undefined;
    await eventually('it is kept', async () => {
      reply = await stack.post(body, init);
      if (status(reply) === 'hit') return true;
      await reply.text();
      return false;
    });
    return reply!;
  }

  test('the same answer again, whole or as a stream, without a batcher', async () => {
    const body = greedy({ pieces: ['one ', 'two ', 'three'] });
    const first = await stack.post(body, as('flood'));
    expect(status(first)).toBe('miss');
    const answer = (await first.json()) as Completion;
    const again = (await (await untilHit(body, as('flood'))).json()) as Completion;
    expect(again).toMatchObject({ model: MODEL, choices: answer.choices, usage: answer.usage });
    expect(again.id).not.toBe(answer.id);
    source.taken.length = 0;
    const streamed = await stack.post({ ...body, stream: true, stream_options: { include_usage: true } }, as('flood'));
    expect(status(streamed)).toBe('hit');
    const chunks = (await readSse(streamed)).events.filter(({ data }) => data !== '[DONE]').map(({ data }) => JSON.parse(data));
    expect(chunks.map(chunk => chunk.choices[0]?.delta.content ?? '').join('')).toBe('one two three');
    expect(chunks.at(-1).usage).toMatchObject(answer.usage);
    expect(source.taken).toEqual([]);
  });

  test('it counts as a request, and as no tokens', async () => {
    const body = greedy({ pieces: ['counted'] });
    await (await stack.post(body, as('light'))).json();
    const hit = await untilHit(body, as('light'));
    const tokens = hit.headers.get('x-ratelimit-remaining-tokens');
    const requests = Number(hit.headers.get('x-ratelimit-remaining-requests'));
    const next = await stack.post(body, as('light'));
    expect(next.headers.get('x-ratelimit-remaining-tokens')).toBe(tokens);
    expect(Number(next.headers.get('x-ratelimit-remaining-requests'))).toBe(requests - 1);
  });

  test('another tenant has none of it', async () => {
    const body = greedy({ pieces: ['a secret'] });
    await (await stack.post(body, as('flood'))).json();
    await untilHit(body, as('flood'));
    expect(status(await stack.post(body, as('light')))).toBe('miss');
  });

  test.each([
    ['the header', { 'x-sluice-cache': 'off' }],
    ['no-store', { 'cache-control': 'max-age=0, no-store' }],
  ])('neither read nor kept with %s', async (name, headers) => {
    const body = greedy({ pieces: [name] });
    for (let i = 0; i < 2; i++) expect(status(await stack.post(body, withHeaders(headers)))).toBeNull();
    expect(status(await stack.post(body))).toBe('miss');
    await untilHit(body);
    expect(status(await stack.post(body, withHeaders(headers)))).toBeNull();
    // Read no, kept yes.
    expect(status(await stack.post(body, withHeaders({ 'cache-control': 'no-cache' })))).toBe('miss');
  });

  test('only what always has the same answer, and nothing that failed', async () => {
    for (let i = 0; i < 2; i++) expect(status(await stack.post(scripted({ pieces: ['free'] }, { temperature: 1 })))).toBeNull();
    await (await stack.post(scripted({ pieces: ['seeded'] }, { temperature: 1, seed: 7 }))).json();
    await untilHit(scripted({ pieces: ['seeded'] }, { temperature: 1, seed: 7 }));
    expect(status(await stack.post(scripted({ pieces: ['seeded'] }, { temperature: 1, seed: 8 })))).toBe('miss');
    const failing = greedy({ error: { code: 'generation_failed', message: 'broken' } });
    for (let i = 0; i < 2; i++) expect((await stack.post(failing)).status).toBe(500);
  });

  test('an answer is its model’s: `default` that means another one, and the same model by its own name', async () => {
    const body = greedy({ pieces: ['whose?'] });
    await (await stack.post(body)).json();
    expect(((await (await untilHit(body)).json()) as Completion).model).toBe(MODEL);
    expect(status(await stack.post({ ...body, model: MODEL }))).toBe('hit');
    // Before the other in the order of names, by which `default` goes.
    const other = await startTokenSource({ redisUrl: stack.redis.url, model: 'a-model' });
    const untilDefaultIs = (model: string) =>
      eventually(`\`default\` means ${model}`, async () => {
        const reply = await fetch(`${stack.gateway.url}/v1/models/default`, { headers: { authorization: `Bearer ${stack.gateway.key}` } });
        return ((await reply.json()) as { id: string }).id === model;
      });
    try {
      await untilDefaultIs('a-model');
      const reply = await stack.post(body);
      expect(status(reply)).toBe('miss');
      expect(((await reply.json()) as Completion).model).toBe('a-model');
      expect(status(await stack.post({ ...body, model: MODEL }))).toBe('hit');
    } finally {
      other.card.state = 'draining';
      await other.publish();
      await untilDefaultIs(MODEL);
      await other.stop();
    }
  });

  test('400 for a use of the cache that there is not', async () => {
    const reply = await stack.post(greedy({}), withHeaders({ 'x-sluice-cache': 'maybe' }));
    expect(((await reply.json()) as ErrorReply).error).toMatchObject({ code: 'invalid_value', param: 'x-sluice-cache' });
  });
});

describe('coalescing', () => {
  const COALESCE = withHeaders({ 'x-sluice-coalesce': 'true' });
  const slow = (text: string, more = {}) => scripted({ pieces: [text, ' end'], stepMs: 400 }, { temperature: 1, ...more });

  test('identical requests that run at once share one generation', async () => {
    const replies = await Promise.all(Array.from({ length: 12 }, () => stack.post(slow('shared'), COALESCE)));
    const answers = (await Promise.all(replies.map(reply => reply.json()))) as Completion[];
    expect(new Set(answers.map(answer => answer.id)).size).toBe(1);
    expect(answers.every(answer => answer.choices[0]!.message.content === 'shared end')).toBe(true);
    expect(replies.filter(reply => reply.headers.get('x-sluice-coalesced') === 'true')).toHaveLength(11);
    expect(source.taken).toHaveLength(1);
    // What is over is nobody else's answer.
    await eventually('one that comes later is generated anew', async () => {
      const reply = await stack.post(slow('shared'), COALESCE);
      const { id } = (await reply.json()) as Completion;
      return id !== answers[0]!.id;
    });
  });

  test('streams with streams, and no one with who did not ask', async () => {
    const replies = await Promise.all([
      stack.post(slow('mixed', { stream: true }), COALESCE),
      stack.post(slow('mixed', { stream: true }), COALESCE),
      stack.post(slow('mixed'), COALESCE),
      stack.post(slow('mixed')),
    ]);
    const texts = await Promise.all(replies.map(reply => reply.text()));
    expect(texts[0]!.replace(/^:.*\n/gm, '')).toBe(texts[1]!.replace(/^:.*\n/gm, ''));
    expect(source.taken).toHaveLength(3);
  });

  test('another tenant’s identical request is its own', async () => {
    const [a, b] = await Promise.all(
      ['flood', 'light'].map(tenant => stack.post(slow('own'), withHeaders({ 'x-sluice-coalesce': 'true' }, tenant))),
    );
    expect(((await a!.json()) as Completion).id).not.toBe(((await b!.json()) as Completion).id);
  });

  test('one that leaves does not end it for the others', async () => {
    const leaving = new AbortController();
    const first = stack.post(slow('stays', { stream: true }), { ...COALESCE, signal: leaving.signal });
    const reader = (await first).body!.getReader();
    await reader.read();
    const second = await stack.post(slow('stays', { stream: true }), COALESCE);
    expect(second.headers.get('x-sluice-coalesced')).toBe('true');
    leaving.abort();
    expect(await second.text()).toContain('" end"');
  });
});
