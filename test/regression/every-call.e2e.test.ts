/** Public faults of bad bodies, tried on every call that takes one, not only on the one that they were met at; numbers as in docs/cases.md. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Stack, startStack } from '../gateway/stack.ts';

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_HEARTBEAT_MS: '200' } });
});
afterAll(() => stack.stop());

const hi = [{ role: 'user', content: 'hi' }];
/** A body that each call answers, and the field that holds what it works on. */
const CALLS: readonly [path: string, body: Record<string, unknown>, subject: string][] = [
  ['/v1/chat/completions', { model: 'default', messages: hi }, 'messages'],
  ['/v1/completions', { model: 'default', prompt: 'hi' }, 'prompt'],
  ['/v1/responses', { model: 'default', input: 'hi' }, 'input'],
  ['/v1/messages', { model: 'default', messages: hi, max_tokens: 5 }, 'messages'],
  ['/v1/messages/count_tokens', { model: 'default', messages: hi }, 'messages'],
  ['/v1/embeddings', { model: 'default', input: 'hi' }, 'input'],
  ['/tokenize', { model: 'default', prompt: 'hi' }, 'prompt'],
  ['/detokenize', { model: 'default', tokens: [1] }, 'tokens'],
];
const STREAMED = new Set(['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages']);
const OTHERS = ['/v1/batches', '/admin/keys', '/admin/tenants'];

const send = (path: string, body: unknown) =>
  fetch(stack.gateway.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${stack.gateway.key}`, 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });

interface Refusal {
  status: number;
  code: string;
  param: string | null;
}

/** Holds the reply to the whole shape of an error: OpenAI's, and under /v1/messages Anthropic's. */
async function refusal(path: string, body: unknown): Promise<Refusal> {
  const response = await send(path, body);
  const text = await response.text();
  expect(response.headers.get('content-type'), text).toMatch(/^application\/json/);
  const reply = JSON.parse(text);
  const { error } = reply;
  expect(error, `${JSON.stringify(body)}: ${text}`).toBeDefined();
  expect(error.message.length).toBeGreaterThan(10);
  if (!path.startsWith('/v1/messages')) {
    expect(Object.keys(reply)).toEqual(['error']);
    expect(Object.keys(error).sort()).toEqual(['code', 'message', 'param', 'type']);
    expect(error.type).toBe('invalid_request_error');
    return { status: response.status, code: error.code, param: error.param };
  }
  expect(reply).toMatchObject({ type: 'error', request_id: expect.any(String) });
  expect(error.type).toBe(response.status === 404 ? 'not_found_error' : 'invalid_request_error');
  return { status: response.status, code: error.details.error_code, param: error.details.param };
}

/** Nothing of it reached a batcher, and the call still works. */
async function isWhole(path: string, body: unknown, takenBefore: number): Promise<void> {
  expect(stack.source.taken.length).toBe(takenBefore);
  const response = await send(path, body);
  expect(response.status, await response.text()).toBe(200);
}

describe.each(CALLS)('%s', (path, body, subject) => {
  test('case 24: a body that is JSON but no object', async () => {
    const before = stack.source.taken.length;
    for (const text of ['"hi"', '[]', '7', 'null', 'true', '[{"model":"default"}]', '', ' '])
      expect(await refusal(path, text), text).toEqual({ status: 400, code: 'invalid_json', param: null });
    await isWhole(path, body, before);
  });

  test('case 25: a body that is no JSON, though it asks for a stream', async () => {
    const before = stack.source.taken.length;
    const whole = JSON.stringify({ stream: true, ...body });
    for (const text of ['{"model":"m","stream":true, x}', whole.slice(0, -1), `${whole}}`, `${whole},`, whole.replaceAll('"', "'")])
      expect(await refusal(path, text), text).toEqual({ status: 400, code: 'invalid_json', param: null });
    await isWhole(path, body, before);
  });

  test('case 26: a model that there is not', async () => {
    const before = stack.source.taken.length;
    for (const model of ['no-such-model', 'Default', 'default ', 'test-model/x', '../test-model', '__proto__', '漢'])
      expect(await refusal(path, { ...body, model }), model).toEqual({ status: 404, code: 'model_not_found', param: 'model' });
    for (const model of ['', 7, [], {}]) expect(await refusal(path, { ...body, model })).toMatchObject({ status: 400, param: 'model' });
    await isWhole(path, body, before);
  });

  test(`cases 27 and 28: nothing to work on`, async () => {
    const before = stack.source.taken.length;
    const { [subject]: _, ...rest } = body;
    const nothing: Record<string, unknown>[] = [{}, { [subject]: 7 }, { [subject]: {} }, { [subject]: false }];
    // No prompt is an empty one to OpenAI, which is the batcher's to refuse; no tokens are an empty text.
    if (path !== '/v1/completions') nothing.push({ [subject]: null });
    if (path !== '/detokenize') nothing.push({ [subject]: [] });
    for (const more of nothing) {
      const { status, param } = await refusal(path, { ...rest, ...more });
      expect([status, param?.split(/[.[]/)[0]], JSON.stringify(more)).toEqual([400, subject]);
    }
    await isWhole(path, body, before);
  });
});

describe.each(CALLS.filter(([path]) => STREAMED.has(path)))('%s', (path, body) => {
  test('case 40: numbers that are none, or beyond their bounds', async () => {
    const before = stack.source.taken.length;
    const raw = (fields: string) => JSON.stringify(body).replace(/}$/, `,${fields}}`);
    for (const name of ['temperature', 'top_p', ...(path === '/v1/responses' ? [] : ['top_k'])]) {
      for (const value of ['1e999', '-1e999', '-2', '1e300', '"hot"', '[]', '{}', 'true'])
        expect(await refusal(path, raw(`"${name}":${value}`)), `${name} ${value}`).toMatchObject({ status: 400, param: name });
      for (const value of ['NaN', 'Infinity', '0x5', '.5', '1_0'])
        expect(await refusal(path, raw(`"${name}":${value}`)), `${name} ${value}`).toMatchObject({ status: 400, code: 'invalid_json' });
    }
    await isWhole(path, body, before);
  });
});

test.each(OTHERS)('cases 24 and 25: %s', async path => {
  for (const text of ['"hi"', '[]', '7', 'null', '', '{"a":1, x}', '{'])
    expect(await refusal(path, text), text).toEqual({ status: 400, code: 'invalid_json', param: null });
});
