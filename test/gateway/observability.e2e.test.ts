/** What an operator sees of the gateway: its metrics, its log, and its place in a caller's trace. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { queueKey, SHARED_QUEUE } from '../../shared/keys.ts';
import { adminClient } from './admin-client.ts';
import { readSse } from './sse-client.ts';
import { eventually, type Stack, scripted, startStack } from './stack.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const SECRET_WORD = 'xylophone';

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({
    bindings: { SLUICE_ACCESS_LOG: 'on', SLUICE_BROKER_SHARDS: '2', SLUICE_KNEE: '2', SLUICE_SCALE_QUEUE_MS: '30000' },
  });
});
afterAll(() => stack?.stop());

const bearer = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });

async function page(): Promise<string> {
  const response = await fetch(`${stack.gateway.url}/metrics`, bearer(stack.gateway.key));
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return await response.text();
}

/** The sum over all series of the name that have these labels. */
function sumOf(text: string, name: string, labels = ''): number {
  const lines = text.split('\n').filter(line => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  return lines.filter(line => line.includes(labels)).reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

interface Line {
  event: string;
  requestId?: string;
  traceId?: string;
  jobId?: string;
  [name: string]: unknown;
}

function lines(): Line[] {
  return stack.gateway
    .output()
    .split('\n')
    .filter(line => line.startsWith('{'))
    .map(line => JSON.parse(line) as Line);
}

describe('metrics', () => {
  test('are for the operator, unless the settings say otherwise', async () => {
    const { key } = await adminClient(stack.gateway).makeKey({ tenant: 'acme', scopes: ['infer', 'admin'] });
    const url = `${stack.gateway.url}/metrics`;
    expect((await fetch(url)).status).toBe(401);
    expect((await fetch(url, bearer(key))).status).toBe(403);
    const response = await fetch(url, bearer(stack.gateway.key));
    expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  });

  test('count every request once, whoever answered it', async () => {
    const before = await page();
    await Promise.all(Array.from({ length: 25 }, () => fetch(`${stack.gateway.url}/v1/models`, bearer('sk-sluice-none'))));
    await fetch(`${stack.gateway.url}/nowhere/at/all`);
    expect((await stack.post({ model: 'gone', messages: [{ role: 'user', content: 'x' }] })).status).toBe(404);
    const after = await page();
    const grown = (name: string, labels: string) => sumOf(after, name, labels) - sumOf(before, name, labels);
    expect(grown('sluice_gateway_requests_total', 'route="/v1/models",method="GET",status="401"')).toBe(25);
    expect(grown('sluice_gateway_requests_total', 'route="none",method="GET",status="404"')).toBe(1);
    expect(grown('sluice_gateway_refusals_total', 'code="invalid_api_key"')).toBe(25);
    // Of a broker's making.
    expect(grown('sluice_gateway_refusals_total', 'code="model_not_found"')).toBe(1);
    expect(grown('sluice_gateway_time_to_first_byte_seconds_count', 'route="/v1/models"')).toBe(25);
  });

  test('tell of jobs, tokens and streams, of all brokers', async () => {
    const before = await page();
    const pieces = Array.from({ length: 20 }, (_, index) => `${index} `);
    const replies = await Promise.all(Array.from({ length: 8 }, () => stack.post(scripted({ pieces }, { stream: true }))));
    await Promise.all(replies.map(readSse));
    expect((await stack.post(scripted({ error: { code: 'generation_failed', message: 'no' } }))).status).toBe(500);
    const held = await stack.post(scripted({ pieces: ['a', 'b'], silentAt: 1 }, { stream: true }));
    const reader = held.body!.getReader();
    await reader.read();
    const after = await page();
    const grown = (name: string, labels = '') => sumOf(after, name, labels) - sumOf(before, name, labels);
    expect(grown('sluice_gateway_answers_total', 'outcome="finished"')).toBe(8);
    expect(grown('sluice_gateway_answers_total', 'outcome="generation_failed"')).toBe(1);
    expect(grown('sluice_gateway_relayed_tokens_total')).toBeGreaterThanOrEqual(160);
    expect(grown('sluice_gateway_request_seconds_count')).toBe(8);
    expect(grown('sluice_gateway_time_to_first_token_seconds_count')).toBeGreaterThanOrEqual(8);
    expect(grown('sluice_gateway_queue_time_seconds_count')).toBeGreaterThanOrEqual(8);
    expect(sumOf(after, 'sluice_gateway_open_streams')).toBe(1);
    expect(sumOf(after, 'sluice_gateway_batchers', 'state="serving"')).toBe(1);
    expect(after).toContain('broker="main-0"');
    expect(after).toContain('broker="main-1"');
    expect(sumOf(after, 'sluice_gateway_brokers_unreachable')).toBe(0);
    await reader.cancel();
    await eventually('the stream to be closed', async () => sumOf(await page(), 'sluice_gateway_open_streams') === 0);
    expect(sumOf(await page(), 'sluice_gateway_answers_total', 'outcome="request_cancelled"')).toBe(1);
  });

  test('of jobs that wait', async () => {
    await stack.source.hold();
    const waiting = Array.from({ length: 3 }, () => stack.post(scripted({ pieces: ['a'] })));
    await eventually('three jobs to wait', async () => sumOf(await page(), 'sluice_gateway_queued_jobs', 'queue="shared"') === 3);
    stack.source.resume();
    for (const reply of await Promise.all(waiting)) expect(reply.status).toBe(200);
  });

  test('are there while Redis is away, and say so', async () => {
    await eventually(
      'both brokers to be connected',
      async () => sumOf(await page(), 'sluice_gateway_redis_up', 'connection="commands"') === 2,
    );
    await stack.redis.halt();
    try {
      await eventually('the loss to show', async () => sumOf(await page(), 'sluice_gateway_redis_up', 'connection="commands"') === 0);
      expect(sumOf(await page(), 'sluice_gateway_redis_connections_lost_total')).toBeGreaterThan(0);
    } finally {
      await stack.redis.resume();
    }
    await eventually('Redis to be back', async () => (await fetch(`${stack.gateway.url}/ready`)).status === 200);
  });

  test('hold no keys, no tenants and no prompts', async () => {
    await stack.post({ model: 'default', messages: [{ role: 'user', content: SECRET_WORD }] });
    const text = await page();
    for (const secret of [stack.gateway.key, stack.gateway.keySecret, SECRET_WORD, 'acme']) expect(text).not.toContain(secret);
  });
});

describe('trace context', () => {
  const traced = (traceparent: string, tracestate?: string) =>
    stack.post(scripted({ pieces: ['a'] }), { headers: { traceparent, ...(tracestate !== undefined && { tracestate }) } });

  test("a caller's trace goes on in the job, the log and the reply", async () => {
    const response = await traced(`00-${TRACE}-${SPAN}-00`, 'congo=t61rcWkgMzE');
    const own = response.headers.get('traceresponse')!;
    expect(own).toMatch(new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
    expect(own).not.toContain(SPAN);
    const jobId = response.headers.get('x-sluice-stream-id')!;
    expect(stack.source.jobs.get(jobId)).toMatchObject({ traceparent: own, tracestate: 'congo=t61rcWkgMzE' });
    const requestId = response.headers.get('x-request-id')!;
    await eventually('the lines of answer and request', () => {
      return lines().some(line => line.event === 'answer' && line.jobId === jobId) && lines().some(line => line.requestId === requestId);
    });
    expect(lines().find(line => line.requestId === requestId)).toMatchObject({
      event: 'request',
      traceId: TRACE,
      parentSpanId: SPAN,
      jobId,
    });
    expect(lines().find(line => line.event === 'answer' && line.jobId === jobId)).toMatchObject({
      ...{ traceId: TRACE, outcome: 'finished', model: 'test-model', completionTokens: 1 },
    });
  });

  test.each(['', 'nonsense', `00-${'0'.repeat(32)}-${SPAN}-01`, `00-${TRACE}-${SPAN}-01-more`])(
    'what is none begins a trace: %j',
    async traceparent => {
      const response = await traced(traceparent, 'congo=t61rcWkgMzE');
      const own = response.headers.get('traceresponse')!;
      expect(own).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
      expect(own).not.toContain(TRACE);
      const job = stack.source.jobs.get(response.headers.get('x-sluice-stream-id')!)!;
      expect(job.traceparent).toBe(own);
      expect(job.tracestate).toBeUndefined();
    },
  );

  test('equal requests of two traces have one kept answer', async () => {
    const body = { model: 'default', temperature: 0, messages: [{ role: 'user', content: 'traced and kept' }] };
    const ask = (traceparent: string) => stack.post(body, { headers: { traceparent, tracestate: `a=${traceparent.length}` } });
    await (await ask(`00-${TRACE}-${SPAN}-01`)).text();
    await eventually('the answer to be kept', async () => (await ask(`00-${TRACE}-${SPAN}-00`)).headers.get('x-sluice-cache') === 'hit');
  });
});

test('a refusal is logged by its code, and the header that tells it stays inside', async () => {
  const response = await stack.post({ model: 'default' });
  expect(response.status).toBe(400);
  expect(response.headers.get('x-sluice-error-code')).toBeNull();
  const requestId = response.headers.get('x-request-id');
  await eventually('the line of the request', () => lines().some(line => line.requestId === requestId));
  expect(lines().find(line => line.requestId === requestId)).toMatchObject({ status: 400, code: 'missing_required_parameter' });
});

test('no line holds a prompt, an answer or a key', async () => {
  await (await stack.post({ model: 'default', messages: [{ role: 'user', content: SECRET_WORD }] })).text();
  const output = stack.gateway.output();
  expect(lines().length).toBeGreaterThan(10);
  for (const secret of [SECRET_WORD, stack.gateway.key, stack.gateway.keySecret]) expect(output).not.toContain(secret);
});

describe('the autoscaling signal', () => {
  const scaleOf = async (query: string, init = bearer(stack.gateway.key)) => await fetch(`${stack.gateway.url}/scale${query}`, init);

  test('tells what the batchers and the queue make of it, as the metrics do', async () => {
    Object.assign(stack.source.card, { requestsPerSecond: 4.5, runningCount: 3, waitingCount: 1 });
    await stack.source.publish();
    await eventually('the card to be read', async () => {
      const reply = await scaleOf('?model=test-model');
      expect(reply.status).toBe(200);
      return ((await reply.json()) as { requests_per_second: number }).requests_per_second === 4.5;
    });
    // 4.5 over 80 % of 2, and the one that waits: 0.017 more.
    expect(await (await scaleOf('?model=test-model')).json()).toEqual({
      ...{ object: 'scale', model: 'test-model', desired_batchers: 3, serving_batchers: 1, requests_per_second: 4.5, waiting_requests: 1 },
      ...{ knee_requests_per_second: 2, knee_ratio: 2.25, queue_seconds: 0.5 },
    });
    const text = await page();
    const label = 'model="test-model"';
    expect(sumOf(text, 'sluice_gateway_desired_batchers', label)).toBe(3);
    expect(sumOf(text, 'sluice_gateway_knee_ratio', label)).toBe(2.25);
    expect(sumOf(text, 'sluice_gateway_request_rate', label)).toBe(4.5);
    expect(sumOf(text, 'sluice_gateway_queue_seconds', label)).toBe(0.5);
  });

  test('is 0 for a model that nobody serves or asks for, and 1 while a job waits for it', async () => {
    const desired = async () => ((await (await scaleOf('?model=gone')).json()) as { desired_batchers: number }).desired_batchers;
    expect(await desired()).toBe(0);
    await stack.source.redis.zadd(queueKey('gone', SHARED_QUEUE, 'prioritized'), 1, 'somebody');
    expect(await desired()).toBe(1);
    await stack.source.redis.del(queueKey('gone', SHARED_QUEUE, 'prioritized'));
  });

  test('is for whom the metrics are, and wants a name', async () => {
    expect((await scaleOf('?model=test-model', {} as never)).status).toBe(401);
    expect(await (await scaleOf('')).json()).toMatchObject({ error: { code: 'missing_required_parameter', param: 'model' } });
    expect(await (await scaleOf('?model=a%20b')).json()).toMatchObject({ error: { code: 'invalid_value', param: 'model' } });
  });
});

test('metrics may be opened to everybody, or turned off', async () => {
  await stack.gateway.restart({ SLUICE_METRICS: 'open' });
  await fetch(`${stack.gateway.url}/health`);
  const open = await fetch(`${stack.gateway.url}/metrics`);
  expect(open.status).toBe(200);
  expect(sumOf(await open.text(), 'sluice_gateway_requests_total', 'route="/health"')).toBeGreaterThan(0);
  await stack.gateway.restart({ SLUICE_METRICS: 'off' });
  expect((await fetch(`${stack.gateway.url}/metrics`, bearer(stack.gateway.key))).status).toBe(404);
});
