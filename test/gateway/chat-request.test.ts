/** ChatRequest: any JSON at all is either a valid job or a client's error that names a field; nothing else comes out. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseChatRequest } from '../../gateway/chat-request.ts';
import { type JsonObject, parseJsonObject } from '../../gateway/json-body.ts';
import { ApiError } from '../../shared/errors.ts';
import { Job } from '../../shared/job.ts';

const bounds = { maxMessageCount: 20 };
const ok = { model: 'default', messages: [{ role: 'user', content: 'hi' }] };
const FIELDS = [
  ...[
    'model',
    'messages',
    'temperature',
    'top_p',
    'top_k',
    'min_p',
    'typical_p',
    'repetition_penalty',
    'presence_penalty',
    'frequency_penalty',
  ],
  ...[
    'logit_bias',
    'seed',
    'n',
    'stop',
    'max_tokens',
    'max_completion_tokens',
    'min_tokens',
    'ignore_eos',
    'logprobs',
    'top_logprobs',
    'stream',
  ],
  ...[
    'stream_options',
    'service_tier',
    'user',
    'store',
    'metadata',
    'tools',
    'tool_choice',
    'chat_template_kwargs',
    'response_format',
    'guided_json',
    'guided_regex',
    'guided_choice',
    'guided_grammar',
    'audio',
    'modalities',
    '__proto__',
  ],
];

function attempt(body: JsonObject): void {
  try {
    const { job, promptTokensBound } = parseChatRequest(body, bounds);
    expect(Job.safeParse({ version: 1, id: 'a', tenant: 't', shard: 's', submittedAt: 1, ...job }).error).toBeUndefined();
    expect(promptTokensBound).toBeGreaterThan(0);
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).status).toBe(400);
    expect((error as ApiError).param).toBeTypeOf('string');
    expect((error as ApiError).message).not.toContain('undefined');
  }
}

test('any values under the known names', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...FIELDS), fc.jsonValue({ maxDepth: 3 })), body => {
      attempt({ ...ok, ...body });
      attempt(body);
    }),
    { numRuns: 500 },
  );
});

test('messages of any make', () => {
  const part = fc.record(
    { type: fc.constantFrom('text', 'refusal', 'image_url', 'x'), text: fc.string(), refusal: fc.string() },
    { requiredKeys: [] },
  );
  const message = fc.record(
    {
      role: fc.constantFrom('system', 'developer', 'user', 'assistant', 'tool', 'function'),
      content: fc.oneof(fc.string({ unit: 'binary' }), fc.array(fc.oneof(part, fc.jsonValue())), fc.constant(null)),
      name: fc.option(fc.string(), { nil: null }),
      tool_calls: fc.array(
        fc.record({
          id: fc.constantFrom('a', 'b'),
          type: fc.constant('function'),
          function: fc.record({ name: fc.string(), arguments: fc.string() }),
        }),
      ),
      tool_call_id: fc.constantFrom('a', 'b', ''),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.array(message, { maxLength: 25 }), messages => attempt({ ...ok, messages })),
    { numRuns: 500 },
  );
});

test('the bound on prompt tokens holds bytes, not characters', () => {
  const short = parseChatRequest({ ...ok, messages: [{ role: 'user', content: 'a'.repeat(1_000) }] }, bounds).promptTokensBound;
  const wide = parseChatRequest({ ...ok, messages: [{ role: 'user', content: '漢'.repeat(1_000) }] }, bounds).promptTokensBound;
  expect(wide - short).toBe(2_000);
});

describe('JSON', () => {
  test.each([
    ['{"a":"]]]]]]]]\\"[[[["}', true],
    ['{"a":"\\\\"}', true],
    ['{"a":[[[1]]]}', true],
    ['{"a":[[[[1]]]]}', false],
    ['{"a":[],"b":[],"c":[],"d":[],"e":{}}', true],
    ['{"a":"[[[[[[[', false],
  ])('depth of %s', (text, isFine) => {
    if (isFine) expect(parseJsonObject(text, 4)).toBeTypeOf('object');
    else expect(() => parseJsonObject(text, 4)).toThrow(ApiError);
  });

  test('depth is what JSON.parse would find', () => {
    const depthOf = (value: unknown): number =>
      typeof value === 'object' && value !== null ? 1 + Math.max(0, ...Object.values(value).map(depthOf)) : 0;
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6, stringUnit: 'binary' }), value => {
        const text = JSON.stringify({ value });
        const depth = depthOf({ value });
        expect(parseJsonObject(text, depth)).toEqual(JSON.parse(text));
        expect(() => parseJsonObject(text, depth - 1)).toThrow('nested');
      }),
    );
  });

  test('any text is an object or a client’s error', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), text => {
        try {
          expect(parseJsonObject(text, 10)).toBeTypeOf('object');
        } catch (error) {
          expect((error as ApiError).code).toBe('invalid_json');
        }
      }),
    );
  });
});

test('a batcher has the last word on biases and on unusual orders of roles', () => {
  const isUncertain = (roles: string, more: JsonObject = {}) => {
    const names = { s: 'system', d: 'developer', u: 'user', a: 'assistant' } as const;
    const messages = [...roles].map(letter => ({ role: names[letter as keyof typeof names], content: 'x' }));
    return parseChatRequest({ ...ok, messages, ...more }, bounds).isPromptUncertain;
  };
  for (const roles of ['u', 'su', 'du', 'uau', 'suauau', 'ua']) expect(isUncertain(roles), roles).toBe(false);
  for (const roles of ['s', 'uu', 'usu', 'au', 'ssu', 'uaa']) expect(isUncertain(roles), roles).toBe(true);
  expect(isUncertain('u', { logit_bias: { 1: 1 } })).toBe(true);
  expect(isUncertain('u', { logit_bias: {} })).toBe(true);
  expect(isUncertain('u', { chat_template_kwargs: { enable_thinking: false } })).toBe(true);
  expect(isUncertain('u', { chat_template_kwargs: null })).toBe(false);
});

test('values for the template go into the job as they are', () => {
  const values = { enable_thinking: false, style: 'short', depth: 2, other: null };
  expect(parseChatRequest({ ...ok, chat_template_kwargs: values }, bounds).job.prompt).toMatchObject({ templateValues: values });
});

test.each<[JsonObject, string, RegExp]>([
  [{ messages: 1 }, 'chat_template_kwargs.messages', /made of the request's other fields/],
  [{ enable_thinking: [true] }, 'chat_template_kwargs.enable_thinking', /true, false, a number, null or a text/],
  [{ a: 'x'.repeat(1_025) }, 'chat_template_kwargs.a', /at most 1024 characters/],
  [{ 'a.b': 1 }, 'chat_template_kwargs', /letters, digits and _/],
  [Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`a${i}`, 1])), 'chat_template_kwargs', /at most 32/],
])('values for the template: %j', (chat_template_kwargs, param, words) => {
  const refused = (() => {
    try {
      parseChatRequest({ ...ok, chat_template_kwargs }, bounds);
    } catch (error) {
      return error as ApiError;
    }
  })();
  expect(refused?.param?.startsWith(param)).toBe(true);
  expect(refused?.message).toMatch(words);
});
