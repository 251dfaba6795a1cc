/** Admission: what is refused, with which status, code and param, and that nothing of it reaches the queue. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ErrorReply, type Stack, scripted, startStack } from './stack.ts';

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({
    contextTokens: 2_000,
    bindings: { SLUICE_MAX_BODY_BYTES: '100000', SLUICE_MAX_MESSAGES: '50', SLUICE_MAX_JSON_DEPTH: '16' },
  });
});
afterAll(() => stack.stop());

const hi = [{ role: 'user', content: 'hi' }];
const ok = { model: 'default', messages: hi };

/** name, body, status, code, param */
const REFUSALS: [string, unknown, number, string, string | null][] = [
  ['case 24: a string', '"hi"', 400, 'invalid_json', null],
  ['case 24: an array', '[]', 400, 'invalid_json', null],
  ['case 24: a number', '7', 400, 'invalid_json', null],
  ['case 24: null', 'null', 400, 'invalid_json', null],
  ['case 24: nothing', '', 400, 'invalid_json', null],
  ['case 25: bad JSON', '{"model":"m","messages":[],"stream":true, x}', 400, 'invalid_json', null],
  ['case 25: cut off', '{"model":"m","messages":[{"role":"user"', 400, 'invalid_json', null],
  ['bytes that are not UTF-8', Uint8Array.of(0x7b, 0xff, 0x7d), 400, 'invalid_json', null],
  ['nested too deep', `{"a":${'['.repeat(40)}${']'.repeat(40)}}`, 400, 'invalid_json', null],
  ['nested beyond any stack', '['.repeat(90_000), 400, 'invalid_json', null],
  ['too large', { ...ok, user: 'x'.repeat(100_000) }, 413, 'body_too_large', null],
  ['case 26: unknown model', { ...ok, model: 'no-such-model' }, 404, 'model_not_found', 'model'],
  ['no model', { messages: hi }, 400, 'missing_required_parameter', 'model'],
  ['model of a wrong type', { ...ok, model: 7 }, 400, 'invalid_value', 'model'],
  ['no messages', { model: 'default' }, 400, 'missing_required_parameter', 'messages'],
  ['case 28: empty messages', { ...ok, messages: [] }, 400, 'invalid_value', 'messages'],
  ['messages null', { ...ok, messages: null }, 400, 'invalid_value', 'messages'],
  ['messages a string', { ...ok, messages: 'hi' }, 400, 'invalid_value', 'messages'],
  ['too many messages', { ...ok, messages: Array(51).fill(hi[0]) }, 400, 'invalid_value', 'messages'],
  ['a message that is no object', { ...ok, messages: ['hi'] }, 400, 'invalid_value', 'messages[0]'],
  ['no role', { ...ok, messages: [{ content: 'hi' }] }, 400, 'missing_required_parameter', 'messages[0].role'],
  ['unknown role', { ...ok, messages: [{ role: 'wizard', content: 'hi' }] }, 400, 'invalid_value', 'messages[0].role'],
  ['no content', { ...ok, messages: [{ role: 'user' }] }, 400, 'missing_required_parameter', 'messages[0].content'],
  ['content null for a user', { ...ok, messages: [{ role: 'user', content: null }] }, 400, 'invalid_value', 'messages[0].content'],
  ['content a number', { ...ok, messages: [{ role: 'user', content: 5 }] }, 400, 'invalid_value', 'messages[0].content'],
  ['content without a part', { ...ok, messages: [{ role: 'user', content: [] }] }, 400, 'invalid_value', 'messages[0].content'],
  [
    'an image',
    {
      ...ok,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'image_url', image_url: { url: 'data:' } },
          ],
        },
      ],
    },
    400,
    'unsupported_parameter',
    'messages[0].content[1]',
  ],
  [
    'a part without text',
    { ...ok, messages: [{ role: 'user', content: [{ type: 'text' }] }] },
    400,
    'missing_required_parameter',
    'messages[0].content[0].text',
  ],
  [
    'assistant null without calls',
    { ...ok, messages: [...hi, { role: 'assistant', content: null }] },
    400,
    'invalid_value',
    'messages[1].content',
  ],
  [
    'a tool answer to nothing',
    { ...ok, messages: [...hi, { role: 'tool', tool_call_id: 'c', content: '4' }] },
    400,
    'invalid_value',
    'messages[1].tool_call_id',
  ],
  [
    'case 40: temperature 1e999',
    '{"model":"default","messages":[{"role":"user","content":"hi"}],"temperature":1e999}',
    400,
    'invalid_value',
    'temperature',
  ],
  [
    'case 40: temperature NaN',
    '{"model":"default","messages":[{"role":"user","content":"hi"}],"temperature":NaN}',
    400,
    'invalid_json',
    'temperature',
  ],
  ['case 40: temperature -1', { ...ok, temperature: -1 }, 400, 'invalid_value', 'temperature'],
  ['case 40: temperature 2.1', { ...ok, temperature: 2.1 }, 400, 'invalid_value', 'temperature'],
  ['case 40: temperature "hot"', { ...ok, temperature: 'hot' }, 400, 'invalid_value', 'temperature'],
  ['case 40: temperature true', { ...ok, temperature: true }, 400, 'invalid_value', 'temperature'],
  ['case 40: top_p 0', { ...ok, top_p: 0 }, 400, 'invalid_value', 'top_p'],
  ['case 40: top_p 2', { ...ok, top_p: 2 }, 400, 'invalid_value', 'top_p'],
  ['min_p 2', { ...ok, min_p: 2 }, 400, 'invalid_value', 'min_p'],
  ['top_k 1.5', { ...ok, top_k: 1.5 }, 400, 'invalid_value', 'top_k'],
  ['presence_penalty 3', { ...ok, presence_penalty: 3 }, 400, 'invalid_value', 'presence_penalty'],
  [
    'frequency_penalty -1e999',
    '{"model":"default","messages":[{"role":"user","content":"hi"}],"frequency_penalty":-1e999}',
    400,
    'invalid_value',
    'frequency_penalty',
  ],
  ['repetition_penalty 0', { ...ok, repetition_penalty: 0 }, 400, 'invalid_value', 'repetition_penalty'],
  ['seed 1.5', { ...ok, seed: 1.5 }, 400, 'invalid_value', 'seed'],
  ['seed out of range', { ...ok, seed: 1e300 }, 400, 'invalid_value', 'seed'],
  ['logit_bias beyond 100', { ...ok, logit_bias: { 5: 101 } }, 400, 'invalid_value', 'logit_bias.5'],
  ['logit_bias of a word', { ...ok, logit_bias: { five: 1 } }, 400, 'invalid_value', 'logit_bias.five'],
  ['n 0', { ...ok, n: 0 }, 400, 'invalid_value', 'n'],
  ['n 9', { ...ok, n: 9 }, 400, 'invalid_value', 'n'],
  ['case 19: stop ""', { ...ok, stop: '' }, 400, 'invalid_value', 'stop'],
  ['case 19: stop [""]', { ...ok, stop: ['a', ''] }, 400, 'invalid_value', 'stop[1]'],
  ['stop of 17', { ...ok, stop: Array(17).fill('a') }, 400, 'invalid_value', 'stop'],
  ['stop a number', { ...ok, stop: 5 }, 400, 'invalid_value', 'stop'],
  ['max_tokens 0', { ...ok, max_tokens: 0 }, 400, 'invalid_value', 'max_tokens'],
  ['max_tokens -5', { ...ok, max_tokens: -5 }, 400, 'invalid_value', 'max_tokens'],
  ['max_completion_tokens "5"', { ...ok, max_completion_tokens: '5' }, 400, 'invalid_value', 'max_completion_tokens'],
  ['min_tokens above max_tokens', { ...ok, min_tokens: 9, max_tokens: 5 }, 400, 'invalid_value', 'min_tokens'],
  ['top_logprobs alone', { ...ok, top_logprobs: 2 }, 400, 'invalid_value', 'top_logprobs'],
  ['top_logprobs 21', { ...ok, logprobs: true, top_logprobs: 21 }, 400, 'invalid_value', 'top_logprobs'],
  ['logprobs 5', { ...ok, logprobs: 5 }, 400, 'invalid_value', 'logprobs'],
  ['stream "yes"', { ...ok, stream: 'yes' }, 400, 'invalid_value', 'stream'],
  ['stream_options without stream', { ...ok, stream_options: { include_usage: true } }, 400, 'invalid_value', 'stream_options'],
  ['service_tier gold', { ...ok, service_tier: 'gold' }, 400, 'invalid_value', 'service_tier'],
  ['tools that are no functions', { ...ok, tools: [{ type: 'custom', custom: { name: 'f' } }] }, 400, 'unsupported_parameter', 'tools[0]'],
  ['a choice of no tools', { ...ok, tool_choice: 'required' }, 400, 'invalid_value', 'tool_choice'],
  ['response_format of no type', { ...ok, response_format: { type: 'xml' } }, 400, 'invalid_value', 'response_format.type'],
  ['response_format a string', { ...ok, response_format: 'json' }, 400, 'invalid_value', 'response_format'],
  [
    'json_schema without one',
    { ...ok, response_format: { type: 'json_schema' } },
    400,
    'missing_required_parameter',
    'response_format.json_schema',
  ],
  [
    'json_schema without a name',
    { ...ok, response_format: { type: 'json_schema', json_schema: { schema: {} } } },
    400,
    'missing_required_parameter',
    'response_format.json_schema.name',
  ],
  [
    'json_schema with a bad name',
    { ...ok, response_format: { type: 'json_schema', json_schema: { name: 'a b', schema: {} } } },
    400,
    'invalid_value',
    'response_format.json_schema.name',
  ],
  [
    'a schema that is none',
    { ...ok, response_format: { type: 'json_schema', json_schema: { name: 'a', schema: [] } } },
    400,
    'invalid_value',
    'response_format.json_schema.schema',
  ],
  ['a schema without measure', { ...ok, guided_json: { title: 'x'.repeat(70_000) } }, 400, 'invalid_value', 'guided_json'],
  ['guided_regex of nothing', { ...ok, guided_regex: '' }, 400, 'invalid_value', 'guided_regex'],
  ['guided_regex too long', { ...ok, guided_regex: 'x'.repeat(4_097) }, 400, 'invalid_value', 'guided_regex'],
  ['guided_choice of none', { ...ok, guided_choice: [] }, 400, 'invalid_value', 'guided_choice'],
  ['guided_choice of an empty text', { ...ok, guided_choice: ['a', ''] }, 400, 'invalid_value', 'guided_choice[1]'],
  ['guided_choice too long', { ...ok, guided_choice: ['x'.repeat(70_000)] }, 400, 'invalid_value', 'guided_choice'],
  ['guided_grammar a number', { ...ok, guided_grammar: 5 }, 400, 'invalid_value', 'guided_grammar'],
  ['two forms at once', { ...ok, guided_regex: 'a', response_format: { type: 'json_object' } }, 400, 'invalid_value', 'guided_regex'],
  ['audio', { ...ok, audio: { voice: 'a', format: 'wav' } }, 400, 'unsupported_parameter', 'audio'],
  ['modalities', { ...ok, modalities: ['text', 'audio'] }, 400, 'unsupported_parameter', 'modalities'],
];

describe('refused', () => {
  test.each(REFUSALS)('%s', async (_, body, status, code, param) => {
    const before = stack.source.taken.length;
    for (const streamed of typeof body === 'object' &&
    body !== null &&
    !(body instanceof Uint8Array) &&
    !('stream' in body) &&
    !('stream_options' in body)
      ? [false, true]
      : [undefined]) {
      const response = await stack.post(streamed === undefined ? body : { ...(body as object), stream: streamed });
      expect(response.headers.get('content-type')).toBe('application/json');
      const reply = (await response.json()) as ErrorReply;
      expect(Object.keys(reply.error).sort()).toEqual(['code', 'message', 'param', 'type']);
      expect({ status: response.status, code: reply.error.code, param: reply.error.param }).toEqual({ status, code, param });
      expect(reply.error.type).toBe('invalid_request_error');
      expect(reply.error.message.length).toBeGreaterThan(10);
    }
    // The gateway is whole, and nothing of it was queued.
    expect((await stack.post(ok)).status).toBe(200);
    expect(stack.source.taken.length).toBe(before + 1);
  });
});

const twoParts = [
  { type: 'text', text: 'You are ' },
  { type: 'text', text: 'helpful.' },
];

/** name, body, what the job must hold */
const ACCEPTED: [string, Record<string, unknown>, Record<string, unknown>][] = [
  [
    'nulls everywhere',
    {
      ...ok,
      temperature: null,
      top_p: null,
      n: null,
      stop: null,
      max_tokens: null,
      max_completion_tokens: null,
      seed: null,
      logit_bias: null,
      logprobs: null,
      top_logprobs: null,
      stream: null,
      stream_options: null,
      tools: null,
      tool_choice: null,
      response_format: null,
      audio: null,
      functions: null,
      user: null,
      service_tier: null,
    },
    { stopping: {}, sampling: { temperature: 1 }, choiceCount: 1, serviceClass: 'default' },
  ],
  ['case 19: stop []', { ...ok, stop: [] }, { stopping: {} }],
  ['case 59: max_tokens null', { ...ok, temperature: 0, max_tokens: null }, { stopping: {}, sampling: { temperature: 0 } }],
  ['max_completion_tokens wins', { ...ok, max_tokens: 3, max_completion_tokens: 4 }, { stopping: { maxTokens: 4 } }],
  ['stop a string', { ...ok, stop: 'x' }, { stopping: { stop: ['x'] } }],
  ['case 15: logprobs without a count', { ...ok, logprobs: true }, { sampling: { temperature: 1, topLogprobs: 0 } }],
  [
    'every knob',
    {
      ...ok,
      temperature: 0.5,
      top_p: 0.9,
      top_k: 40,
      min_p: 0.05,
      typical_p: 0.9,
      presence_penalty: 1,
      frequency_penalty: -1,
      repetition_penalty: 1.1,
      seed: -7,
      logit_bias: { 5: -100 },
      logprobs: true,
      top_logprobs: 3,
      min_tokens: 1,
      ignore_eos: true,
    },
    {
      sampling: {
        temperature: 0.5,
        topP: 0.9,
        topK: 40,
        minP: 0.05,
        typicalP: 0.9,
        presencePenalty: 1,
        frequencyPenalty: -1,
        repetitionPenalty: 1.1,
        seed: -7,
        logitBias: { 5: -100 },
        topLogprobs: 3,
      },
      stopping: { minTokens: 1, ignoreEos: true },
    },
  ],
  ['any JSON object', { ...ok, response_format: { type: 'json_object' } }, { structure: { kind: 'json', param: 'response_format' } }],
  [
    'a schema',
    {
      ...ok,
      response_format: { type: 'json_schema', json_schema: { name: 'a', strict: true, schema: { type: 'object', 'x-y': [null] } } },
    },
    { structure: { kind: 'schema', param: 'response_format', schema: { type: 'object', 'x-y': [null] } } },
  ],
  ['a schema by the extension', { ...ok, guided_json: {} }, { structure: { kind: 'schema', param: 'guided_json', schema: {} } }],
  ['an expression', { ...ok, guided_regex: 'a+' }, { structure: { kind: 'regex', param: 'guided_regex', pattern: 'a+' } }],
  ['choices', { ...ok, guided_choice: ['a', 'b'] }, { structure: { kind: 'choice', param: 'guided_choice', choices: ['a', 'b'] } }],
  [
    'a grammar',
    { ...ok, guided_grammar: 'root ::= "a"' },
    { structure: { kind: 'grammar', param: 'guided_grammar', grammar: 'root ::= "a"' } },
  ],
  ['top_k -1 means all', { ...ok, top_k: -1 }, { sampling: { temperature: 1 } }],
  ['service tiers', { ...ok, service_tier: 'flex' }, { serviceClass: 'flex' }],
  [
    'fields without effect',
    {
      ...ok,
      store: true,
      metadata: { a: 'b' },
      user: 'u',
      parallel_tool_calls: false,
      tools: [],
      tool_choice: 'auto',
      modalities: ['text'],
      response_format: { type: 'text' },
    },
    { stopping: {} },
  ],
  ['a field that nobody knows', { ...ok, cache_salt: 'theirs' }, { stopping: {} }],
  [
    'case 11: parts for every role',
    { ...ok, messages: ['system', 'user', 'assistant'].map(role => ({ role, content: twoParts })) },
    { prompt: { kind: 'chat', messages: ['system', 'user', 'assistant'].map(role => ({ role, content: 'You are helpful.' })) } },
  ],
  [
    'developer is system',
    { ...ok, messages: [{ role: 'developer', content: 'be brief' }, ...hi] },
    { prompt: { kind: 'chat', messages: [{ role: 'system', content: 'be brief' }, ...hi] } },
  ],
  [
    'case 29: a call with content null and its answer',
    {
      ...ok,
      messages: [
        ...hi,
        { role: 'assistant', content: null, tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } }] },
        { role: 'tool', tool_call_id: 'c1', content: '42' },
      ],
    },
    {
      prompt: {
        kind: 'chat',
        messages: [
          ...hi,
          { role: 'assistant', content: null, toolCalls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } }] },
          { role: 'tool', content: '42', toolCallId: 'c1' },
        ],
      },
    },
  ],
  [
    'case 31: roles in any order',
    { ...ok, messages: [{ role: 'assistant', content: 'a' }, ...hi, ...hi, { role: 'system', content: 's' }] },
    { choiceCount: 1 },
  ],
  [
    'a lone surrogate',
    { ...ok, messages: [{ role: 'user', content: 'a\ud800b' }] },
    { prompt: { kind: 'chat', messages: [{ role: 'user', content: 'a\ufffdb' }] } },
  ],
];

describe('accepted', () => {
  test.each(ACCEPTED)('%s', async (_, body, expected) => {
    const response = await stack.post(body);
    expect({ status: response.status, body: response.ok ? '' : await response.text() }).toEqual({ status: 200, body: '' });
    const reply = (await response.json()) as { id: string; model: string };
    const job = stack.source.jobs.get(reply.id)!;
    expect(reply.model).toBe('test-model');
    expect(job).toMatchObject({ version: 1, model: 'test-model', tenant: 'dev' });
    for (const [key, value] of Object.entries(expected)) expect(job[key]).toEqual(value);
  });
});

describe('context length', () => {
  const long = 'x'.repeat(3_000);
  const tooLong = { code: 'context_length_exceeded', message: 'This model holds 2000 tokens; the prompt has 3000.', param: 'messages' };

  test.each([false, true])('cases 32 and 33: the batcher refuses the prompt, stream %s', async stream => {
    const response = await stack.post(scripted({ error: tooLong, pieces: [long] }, { stream }));
    expect(response.status).toBe(400);
    expect(response.headers.get('content-type')).toBe('application/json');
    expect(((await response.json()) as ErrorReply).error).toEqual({ ...tooLong, type: 'invalid_request_error' });
  });

  test('a long prompt that the batcher accepts is answered', async () => {
    const response = await stack.post({ ...ok, messages: [{ role: 'user', content: long }], stream: true });
    expect(response.status).toBe(200);
    expect(await response.text()).toContain('[DONE]');
  });
});

describe('keys', () => {
  const call = (headers: Record<string, string>, path = '/v1/models') => fetch(stack.gateway.url + path, { headers });

  test.each([
    ['none', {}],
    ['wrong', { authorization: 'Bearer sk-wrong' }],
    ['empty', { authorization: 'Bearer ' }],
    ['another scheme', { authorization: 'Basic c2s6' }],
    ['in another header', { 'x-api-key': 'sk' }],
    ['endless', { authorization: `Bearer ${'k'.repeat(8_000)}` }],
  ] as [string, Record<string, string>][])('%s: 401 with CORS headers', async (_, headers) => {
    const response = await call(headers);
    expect(response.status).toBe(401);
    expect(response.headers.get('access-control-allow-origin')).toBe('*');
    const { error } = (await response.json()) as ErrorReply;
    expect({ ...error, message: '' }).toEqual({ message: '', type: 'authentication_error', param: null, code: 'invalid_api_key' });
    expect(error.message).not.toContain(headers.authorization?.slice(7) || 'kkkk');
  });

  test('a prefix of the key, and the key and more', async () => {
    const { key } = stack.gateway;
    for (const wrong of [key.slice(0, -1), `${key}x`, key.toUpperCase(), key + key]) {
      expect((await call({ authorization: `Bearer ${wrong}` })).status).toBe(401);
    }
    expect((await call({ authorization: `bearer ${key}` })).status).toBe(200);
  });

  test('case 30: a preflight needs no key', async () => {
    const response = await fetch(`${stack.gateway.url}/v1/chat/completions`, {
      method: 'OPTIONS',
      headers: {
        origin: 'http://page.example',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,x-stainless-os',
      },
    });
    expect(response.status).toBe(204);
    expect(response.headers.get('access-control-allow-origin')).toBe('*');
    expect(response.headers.get('access-control-allow-methods')).toContain('POST');
    expect(response.headers.get('access-control-allow-headers')).toBe('authorization,x-stainless-os');
  });
});

describe('other routes', () => {
  const get = (path: string, init: RequestInit = {}) =>
    fetch(stack.gateway.url + path, { headers: { authorization: `Bearer ${stack.gateway.key}` }, ...init });

  test('models', async () => {
    const list = (await (await get('/v1/models')).json()) as {
      object: string;
      data: { id: string; object: string; created: number; owned_by: string }[];
    };
    expect(list).toMatchObject({
      object: 'list',
      data: [{ id: 'test-model', object: 'model', owned_by: 'sluice', context_length: 2_000 }],
    });
    expect(Number.isInteger(list.data[0]!.created)).toBe(true);
    expect(await (await get('/v1/models/test-model')).json()).toEqual(list.data[0]);
    expect(await (await get('/v1/models/default')).json()).toEqual(list.data[0]);
    const missing = await get('/v1/models/none');
    expect(missing.status).toBe(404);
    expect(((await missing.json()) as ErrorReply).error).toMatchObject({ code: 'model_not_found', param: 'model' });
  });

  test('health and readiness', async () => {
    expect((await fetch(`${stack.gateway.url}/health`)).status).toBe(200);
    const ready = await fetch(`${stack.gateway.url}/ready`);
    expect({ status: ready.status, body: await ready.json() }).toEqual({ status: 200, body: { status: 'ready', models: ['test-model'] } });
  });

  test.each([
    ['/v1/nothing', 'GET', 404, 'not_found'],
    ['/elsewhere', 'GET', 404, 'not_found'],
    ['/v1/chat/completions', 'GET', 405, 'method_not_allowed'],
    ['/v1/models', 'DELETE', 405, 'method_not_allowed'],
  ])('%s %s', async (path, method, status, code) => {
    const response = await get(path, { method });
    expect(response.status).toBe(status);
    expect(((await response.json()) as ErrorReply).error).toMatchObject({ code, param: null });
  });

  test('request ids: the client’s when it is harmless', async () => {
    expect((await get('/health', { headers: { 'x-request-id': 'abc-1.2' } })).headers.get('x-request-id')).toBe('abc-1.2');
    for (const bad of ['a b', 'x'.repeat(129), 'a"b']) {
      expect((await get('/health', { headers: { 'x-request-id': bad } })).headers.get('x-request-id')).toMatch(/^req_[0-9a-f]{32}$/);
    }
  });
});
