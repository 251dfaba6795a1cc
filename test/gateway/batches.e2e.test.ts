/** /v1/files and /v1/batches as OpenAI's own client uses them: results of every line once, over restarts of everything, for their tenant only. */
import OpenAI, { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { adminClient } from './admin-client.ts';
import { eventually, type Stack, startStack } from './stack.ts';
import type { Script } from './token-source.ts';

const CHAT = '/v1/chat/completions';

let stack: Stack;
let openai: OpenAI;
beforeAll(async () => {
  stack = await startStack({ rowCount: 6, bindings: { SLUICE_BATCH_WINDOW: '8', SLUICE_HEARTBEAT_MS: '200', SLUICE_CACHE_TTL_MS: '0' } });
  openai = clientOf(stack.gateway.key);
});
afterAll(() => stack.stop());
afterEach(() => stack.source.resume());

const clientOf = (apiKey: string) => new OpenAI({ baseURL: `${stack.gateway.url}/v1`, apiKey, maxRetries: 0 });
const makeClient = async (plan: { tenant: string; limits?: object }) => clientOf((await adminClient(stack.gateway).makeKey(plan)).key);

const chatLine = (customId: string, script: Script | string, more: object = {}) => ({
  ...{ custom_id: customId, method: 'POST', url: CHAT },
  body: { model: 'default', messages: [{ role: 'user', content: typeof script === 'string' ? script : JSON.stringify(script) }], ...more },
});
const names = (count: number, stem = 'line') => Array.from({ length: count }, (_, index) => `${stem}-${index}`);

async function upload(lines: readonly (object | string)[], client = openai): Promise<OpenAI.FileObject> {
  const text = lines.map(line => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n');
  return await client.files.create({ purpose: 'batch', file: await toFile(Buffer.from(text), 'input.jsonl') });
}

async function begin(
  lines: readonly (object | string)[],
  { client = openai, endpoint = CHAT as OpenAI.BatchCreateParams['endpoint'], ...more } = {},
) {
  const { id } = await upload(lines, client);
  return await client.batches.create({ input_file_id: id, endpoint, completion_window: '24h', ...more });
}

/** Until it is over, whatever happens to the gateway meanwhile. */
async function ended(id: string, client = openai): Promise<OpenAI.Batch> {
  for (;;) {
    const batch = await client.batches.retrieve(id).catch(() => undefined);
    if (batch !== undefined && ['completed', 'failed', 'cancelled', 'expired'].includes(batch.status)) return batch;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

interface ResultLine {
  id: string;
  custom_id: string;
  // biome-ignore lint/suspicious/noExplicitAny: of three endpoints, and errors
  response: { status_code: number; request_id: string; body: any } | null;
  error: { code: string; message: string } | null;
}

async function results(fileId: string | null | undefined, client = openai): Promise<Map<string, ResultLine>> {
  if (fileId === null || fileId === undefined) return new Map();
  const text = await (await client.files.content(fileId)).text();
  const lines = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as ResultLine);
  const named = new Map(lines.map(line => [line.custom_id, line]));
  expect(named.size).toBe(lines.length);
  return named;
}

const textOf = (line: ResultLine | undefined) => line?.response?.body.choices[0].message?.content ?? line?.response?.body.choices[0].text;

describe('a batch', () => {
  test('of responses', async () => {
    const line = (customId: string, input: string, more: object = {}) => ({
      ...{ custom_id: customId, method: 'POST', url: '/v1/responses', body: { model: 'default', input, ...more } },
    });
    const lines = [line('a', 'one two'), line('b', 'x', { background: true }), line('c', 'x', { text: { format: { type: 'none' } } })];
    const batch = await ended((await begin(lines, { endpoint: '/v1/responses' })).id);
    expect(batch).toMatchObject({ request_counts: { total: 3, completed: 1, failed: 2 }, usage: { input_tokens: 7, output_tokens: 2 } });
    const body = (await results(batch.output_file_id)).get('a')!.response!.body;
    expect(body).toMatchObject({ object: 'response', status: 'completed', output: [{ content: [{ text: 'one two' }] }] });
    const { output_text } = await openai.responses.retrieve(body.id);
    expect(output_text).toBe('one two');
    const refused = await results(batch.error_file_id);
    expect([...refused.values()].map(({ custom_id, response }) => [custom_id, response!.body.error.param]).sort()).toEqual([
      ['b', 'background'],
      ['c', 'text.format.type'],
    ]);
  });

  test('of responses that call functions, and that go on from others', async () => {
    const first = await openai.responses.create({ model: 'default', input: 'one' });
    const tools = [{ type: 'function', name: 'look', parameters: { type: 'object' } }];
    const script: Script = { calls: [{ index: 0, name: 'look', arguments: '{"at":"it"}' }] };
    const bodies: [string, object][] = [
      ['call', { input: JSON.stringify(script), tools, tool_choice: 'required' }],
      ['next', { input: 'two', previous_response_id: first.id }],
      ['lost', { input: 'two', previous_response_id: 'resp_none' }],
      ['search', { input: 'x', tools: [{ type: 'web_search' }] }],
    ];
    const lines = bodies.map(([custom_id, body]) => ({
      custom_id,
      method: 'POST',
      url: '/v1/responses',
      body: { model: 'default', ...body },
    }));
    const batch = await ended((await begin(lines, { endpoint: '/v1/responses' })).id);
    const answers = await results(batch.output_file_id);
    const body = (name: string) => answers.get(name)!.response!.body;
    expect(body('call').output).toMatchObject([{ type: 'function_call', name: 'look', arguments: '{"at":"it"}' }]);
    expect(body('next')).toMatchObject({ previous_response_id: first.id, output: [{ content: [{ text: 'two' }] }] });
    const { prompt } = stack.source.jobs.get(body('next').id)!;
    expect(prompt).toMatchObject({ messages: [{ content: 'one' }, { content: 'one' }, { content: 'two' }] });
    const refused = await results(batch.error_file_id);
    expect([...refused.values()].map(({ custom_id, response }) => [custom_id, response!.body.error.code]).sort()).toEqual([
      ['lost', 'previous_response_not_found'],
      ['search', 'unsupported_parameter'],
    ]);
  });

  test('from the upload to its results, in the shapes of OpenAI', async () => {
    const from = stack.source.taken.length;
    const file = await upload([chatLine('a', 'first answer'), chatLine('b', 'second answer'), chatLine('c', 'third', { temperature: 99 })]);
    expect(file).toEqual({
      ...{ id: expect.stringMatching(/^file-\w+$/), object: 'file', bytes: expect.any(Number), created_at: expect.any(Number) },
      ...{
        expires_at: file.created_at + 30 * 86_400,
        filename: 'input.jsonl',
        purpose: 'batch',
        status: 'processed',
        status_details: null,
      },
    });
    const made = await openai.batches.create({
      ...{ input_file_id: file.id, endpoint: CHAT, completion_window: '24h', metadata: { of: 'a test' } },
      output_expires_after: { anchor: 'created_at', seconds: 3_600 },
    });
    expect(made).toMatchObject({
      ...{ id: expect.stringMatching(/^batch_\w+$/), object: 'batch', endpoint: CHAT, input_file_id: file.id, status: 'validating' },
      ...{ completion_window: '24h', expires_at: made.created_at + 86_400, metadata: { of: 'a test' }, output_file_id: null, errors: null },
      request_counts: { total: 0, completed: 0, failed: 0 },
    });
    const batch = await ended(made.id);
    expect(batch).toMatchObject({
      ...{ status: 'completed', request_counts: { total: 3, completed: 2, failed: 1 }, error_file_id: expect.stringMatching(/^file-/) },
      ...{ in_progress_at: expect.any(Number), finalizing_at: expect.any(Number), completed_at: expect.any(Number), cancelled_at: null },
    });
    const output = await results(batch.output_file_id);
    expect(output.get('a')).toMatchObject({
      ...{ id: expect.stringMatching(/^batch_req_/), error: null },
      response: { status_code: 200, request_id: expect.stringMatching(/^req_/), body: { object: 'chat.completion' } },
    });
    expect([textOf(output.get('a')), textOf(output.get('b')), output.size]).toEqual(['first answer', 'second answer', 2]);
    const errors = await results(batch.error_file_id);
    expect(errors.get('c')).toMatchObject({
      response: { status_code: 400, body: { error: { code: 'invalid_value', param: 'temperature', type: 'invalid_request_error' } } },
      error: null,
    });
    expect(await openai.files.retrieve(batch.output_file_id!)).toMatchObject({
      ...{ purpose: 'batch_output', filename: `${batch.id}_output.jsonl`, expires_at: batch.completed_at! + 3_600 },
    });
    const jobs = stack.source.taken.slice(from).map(id => stack.source.jobs.get(id)!);
    expect(jobs.map(job => job.serviceClass)).toEqual(['flex', 'flex']);
    expect(batch.usage).toMatchObject({ output_tokens: 4, total_tokens: batch.usage!.input_tokens + 4 });
  });

  test('completions and embeddings', async () => {
    const text = await begin([{ custom_id: 'a', method: 'POST', url: '/v1/completions', body: { model: 'default', prompt: 'go on' } }], {
      endpoint: '/v1/completions',
    });
    expect(textOf((await results((await ended(text.id)).output_file_id)).get('a'))).toBe('go on');
    const vectors = await begin(
      [
        {
          custom_id: 'a',
          method: 'POST',
          url: '/v1/embeddings',
          body: { model: 'default', input: ['one', 'two'], encoding_format: 'float' },
        },
      ],
      { endpoint: '/v1/embeddings' },
    );
    const { response } = (await results((await ended(vectors.id)).output_file_id)).get('a')!;
    expect(response!.body.data.map((one: { embedding: number[] }) => one.embedding)).toEqual([
      [0.5, -0.5, 0.5, 0.5],
      [0.5, -0.5, 0.5, 0.5],
    ]);
  });

  test('what a line asks wrongly is told of that line', async () => {
    const wrong = [
      chatLine('stream', 'x', { stream: true }),
      chatLine('model', 'x', { model: 'none' }),
      chatLine('deep', 'x', { metadata: JSON.parse('['.repeat(100) + ']'.repeat(100)) }),
      JSON.stringify(chatLine('abyss', 'x', { metadata: 0 })).replace(
        '"metadata":0',
        `"metadata":${'['.repeat(200_000)}${']'.repeat(200_000)}`,
      ),
      chatLine('failing', { error: { code: 'context_length_exceeded', message: 'Too long.', param: 'messages' } }),
      { ...chatLine('none', 'x'), body: {} },
    ];
    const batch = await ended((await begin([...wrong, chatLine('good', 'x')])).id);
    expect(batch.request_counts).toEqual({ total: 7, completed: 1, failed: 6 });
    const told = [...(await results(batch.error_file_id))].map(([name, { response }]) => [
      name,
      response!.status_code,
      response!.body.error.code,
    ]);
    expect(Object.fromEntries(told.map(([name, ...rest]) => [name, rest]))).toEqual({
      ...{ stream: [400, 'invalid_value'], model: [404, 'model_not_found'], deep: [400, 'invalid_json'], abyss: [400, 'invalid_json'] },
      ...{ failing: [400, 'context_length_exceeded'], none: [400, 'missing_required_parameter'] },
    });
  });

  test('an input that is no list of requests fails whole', async () => {
    const batch = await ended((await begin([chatLine('a', 'x'), chatLine('a', 'x'), { custom_id: 'c' }])).id);
    expect(batch).toMatchObject({
      ...{ status: 'failed', failed_at: expect.any(Number), output_file_id: null, error_file_id: null },
      errors: {
        object: 'list',
        data: [
          { code: 'duplicate_custom_id', line: 2 },
          { code: 'missing_required_parameter', param: 'method', line: 3 },
        ],
      },
    });
  });

  test.each<[object, string]>([
    [{ endpoint: '/v1/moderations' }, 'endpoint'],
    [{ completion_window: '7d' }, 'completion_window'],
    [{ input_file_id: 'file-none' }, 'input_file_id'],
    [{ metadata: { a: 5 } }, 'metadata.a'],
    [{ output_expires_after: { anchor: 'created_at', seconds: 5 } }, 'output_expires_after.seconds'],
  ])('%j is refused', async (more, param) => {
    const { id } = await upload([chatLine('a', 'x')]);
    const body = { input_file_id: id, endpoint: CHAT, completion_window: '24h', ...more } as OpenAI.BatchCreateParams;
    await expect(openai.batches.create(body)).rejects.toMatchObject({ status: 400, param });
  });
});

describe('nothing is lost and nothing done twice', () => {
  const lines = (stem: string) => names(40, stem).map(name => chatLine(name, { pieces: [name, ' is', ' done'], stepMs: 60 }));

  async function check(id: string, stem: string, from: number): Promise<void> {
    const batch = await ended(id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 40, completed: 40, failed: 0 } });
    const output = await results(batch.output_file_id);
    for (const name of names(40, stem)) expect(textOf(output.get(name))).toBe(`${name} is done`);
    expect(stack.source.taken.length - from).toBe(40);
  }

  test('the gateway is killed, twice', async () => {
    const from = stack.source.taken.length;
    const { id } = await begin(lines('gateway'));
    for (const count of [5, 20]) {
      await eventually('some to be taken', () => stack.source.taken.length - from >= count);
      await stack.gateway.restart();
    }
    await check(id, 'gateway', from);
  });

  test('nobody asks after the restart: it goes on by itself', async () => {
    const from = stack.source.taken.length;
    const { id } = await begin(lines('alone'));
    await eventually('some to be taken', () => stack.source.taken.length - from >= 5);
    await stack.gateway.restart();
    while (stack.source.taken.length - from < 40) await new Promise(resolve => setTimeout(resolve, 100));
    await check(id, 'alone', from);
  });

  test('Redis is away for a while', async () => {
    const from = stack.source.taken.length;
    const { id } = await begin(lines('redis'));
    await eventually('some to be taken', () => stack.source.taken.length - from >= 10);
    await stack.redis.halt();
    await new Promise(resolve => setTimeout(resolve, 1_500));
    await stack.redis.resume();
    const batch = await ended(id);
    expect(batch.request_counts).toEqual({ total: 40, completed: 40, failed: 0 });
  });

  test('no batcher is there for a while', async () => {
    const { card } = stack.source;
    card.state = 'draining';
    await stack.source.publish();
    await eventually('that to be known', async () => (await fetch(`${stack.gateway.url}/ready`)).status === 503);
    const from = stack.source.taken.length;
    const { id } = await begin(lines('batcher'));
    await eventually('it to be looked through', async () => (await openai.batches.retrieve(id)).status === 'in_progress');
    await new Promise(resolve => setTimeout(resolve, 1_000));
    expect((await openai.batches.retrieve(id)).request_counts).toEqual({ total: 40, completed: 0, failed: 0 });
    card.state = 'serving';
    await stack.source.publish();
    await check(id, 'batcher', from);
  });

  test('a request that waits for nobody is put before them', async () => {
    const from = stack.source.taken.length;
    const { id } = await begin(lines('polite'));
    await eventually('some to be taken', () => stack.source.taken.length - from >= 6);
    const reply = await openai.chat.completions.create({ model: 'default', messages: [{ role: 'user', content: 'me first' }] });
    expect(reply.choices[0]!.message.content).toBe('me first');
    // Not behind those that waited before it: the next row was its.
    expect((await openai.batches.retrieve(id)).status).toBe('in_progress');
    await ended(id);
  });
});

describe('cancelling', () => {
  test('stops what runs and what waits, and keeps what is done', async () => {
    const from = stack.source.taken.length;
    const slow = names(20, 'slow').map(name => chatLine(name, { pieces: ['on '], repeat: 5_000, stepMs: 20 }));
    const { id } = await begin([chatLine('quick', 'done'), ...slow]);
    await eventually('one to be done', async () => (await openai.batches.retrieve(id)).request_counts!.completed === 1);
    const running = stack.source.taken.slice(from + 1);
    expect(['cancelling', 'cancelled']).toContain((await openai.batches.cancel(id)).status);
    const batch = await ended(id);
    expect(batch).toMatchObject({ status: 'cancelled', cancelled_at: expect.any(Number), cancelling_at: expect.any(Number) });
    expect(batch.request_counts).toEqual({ total: 21, completed: 1, failed: 20 });
    await eventually('what ran to be stopped', () => running.every(job => stack.source.cancelled.includes(job)));
    expect(textOf((await results(batch.output_file_id)).get('quick'))).toBe('done');
    const errors = [...(await results(batch.error_file_id)).values()];
    expect(errors.map(({ response, error }) => [response, error!.code])).toEqual(Array(20).fill([null, 'batch_cancelled']));
    await expect(openai.batches.cancel(id)).rejects.toMatchObject({ status: 400 });
  });

  test('survives the gateway', async () => {
    await stack.source.hold();
    const { id } = await begin(names(10, 'held').map(name => chatLine(name, name)));
    await eventually('it to be looked through', async () => (await openai.batches.retrieve(id)).status === 'in_progress');
    await openai.batches.cancel(id);
    await stack.gateway.restart();
    expect((await ended(id)).request_counts).toEqual({ total: 10, completed: 0, failed: 10 });
  });
});

describe('tenants', () => {
  test('what is one’s does not exist for another', async () => {
    const [mine, other] = [await makeClient({ tenant: 'mine' }), await makeClient({ tenant: 'other' })];
    const { id } = await begin([chatLine('a', 'secret')], { client: mine });
    const batch = await ended(id, mine);
    const notFound = { status: 404, code: 'not_found' };
    for (const file of [batch.input_file_id, batch.output_file_id!]) {
      await expect(other.files.retrieve(file)).rejects.toMatchObject(notFound);
      await expect(other.files.content(file)).rejects.toMatchObject(notFound);
      await expect(other.files.delete(file)).rejects.toMatchObject(notFound);
    }
    await expect(other.batches.retrieve(id)).rejects.toMatchObject(notFound);
    await expect(other.batches.cancel(id)).rejects.toMatchObject(notFound);
    const stolen = { input_file_id: batch.input_file_id, endpoint: CHAT, completion_window: '24h' } as const;
    await expect(other.batches.create(stolen)).rejects.toMatchObject({ status: 400, param: 'input_file_id' });
    expect([(await other.files.list()).data, (await other.batches.list()).data]).toEqual([[], []]);
    expect((await results(batch.output_file_id, mine)).size).toBe(1);
  });

  test('in the ledger, and gone with their tenant', async () => {
    const client = await makeClient({ tenant: 'leaving' });
    const batch = await ended((await begin([chatLine('a', 'one two'), chatLine('b', 'three')], { client })).id, client);
    await eventually('its usage', async () => (await adminClient(stack.gateway).usage('leaving')).some(row => row.completion_tokens === 3));
    await adminClient(stack.gateway).call('DELETE', '/tenants/leaving');
    const again = await makeClient({ tenant: 'leaving' });
    expect([(await again.files.list()).data, (await again.batches.list()).data]).toEqual([[], []]);
    await expect(again.files.content(batch.output_file_id!)).rejects.toMatchObject({ status: 404 });
  });

  test('a batch leaves half of the limits to what somebody waits for', async () => {
    const client = await makeClient({ tenant: 'limited', limits: { concurrent_requests: 4 } });
    const from = stack.source.taken.length;
    const { id } = await begin(
      names(12).map(name => chatLine(name, { pieces: ['a', 'b', 'c'], stepMs: 100 })),
      { client },
    );
    await eventually('two to run', () => stack.source.taken.length - from === 2);
    const asked = { model: 'default', messages: [{ role: 'user' as const, content: 'now' }] };
    const replies = await Promise.all([client.chat.completions.create(asked), client.chat.completions.create(asked)]);
    expect(replies.map(reply => reply.choices[0]!.message.content)).toEqual(['now', 'now']);
    expect((await ended(id, client)).request_counts).toEqual({ total: 12, completed: 12, failed: 0 });
  });

  test('a key that is no more lets nothing in', async () => {
    const admin = adminClient(stack.gateway);
    const { key, id: keyId } = await admin.makeKey({ tenant: 'revoked' });
    const client = clientOf(key);
    const { id: fileId } = await upload([chatLine('a', 'x')], client);
    await admin.call('DELETE', `/keys/${keyId}?tenant=revoked`);
    for (const call of [
      () => upload([chatLine('b', 'x')], client),
      () => client.files.retrieve(fileId),
      () => client.batches.create({ input_file_id: fileId, endpoint: CHAT, completion_window: '24h' }),
      () => client.batches.cancel('batch_none'),
    ]) {
      await expect(call()).rejects.toMatchObject({ status: 401 });
    }
  });
});

test('lists, page by page', async () => {
  const client = await makeClient({ tenant: 'pages' });
  const batches = [];
  for (let i = 0; i < 5; i++) batches.push(await begin([chatLine('a', 'x')], { client }));
  for (const { id } of batches) await ended(id, client);
  const ids = batches.map(({ id }) => id).reverse();
  const page = await client.batches.list({ limit: 2 });
  expect([page.data.map(({ id }) => id), page.has_more]).toEqual([ids.slice(0, 2), true]);
  const seen = [];
  for await (const batch of client.batches.list({ limit: 2 })) seen.push(batch.id);
  expect(seen).toEqual(ids);
  const inputs = [];
  for await (const file of client.files.list({ purpose: 'batch', limit: 2, order: 'asc' })) inputs.push(file.id);
  expect(inputs).toEqual(batches.map(batch => batch.input_file_id));
  expect((await client.files.list()).data.length).toBe(10);
  await expect(client.batches.list({ limit: 1_000 })).rejects.toMatchObject({ status: 400, param: 'limit' });
});

test('a file that is read cannot be deleted, and one that was is gone', async () => {
  await stack.source.hold();
  const batch = await begin([chatLine('a', 'x')]);
  await expect(openai.files.delete(batch.input_file_id)).rejects.toMatchObject({ status: 400 });
  stack.source.resume();
  await ended(batch.id);
  expect(await openai.files.delete(batch.input_file_id)).toEqual({ id: batch.input_file_id, object: 'file', deleted: true });
  await expect(openai.files.retrieve(batch.input_file_id)).rejects.toMatchObject({ status: 404 });
});
