/** /v1/messages as Anthropic's own client uses it: whole, streamed, left, refused; its events and its errors, and that it counts like every other call. */
import Anthropic from '@anthropic-ai/sdk';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { adminClient } from './admin-client.ts';
import { twoCalls } from './call-scripts.ts';
import { parseSse } from './sse-client.ts';
import { eventually, type Stack, startStack } from './stack.ts';
import type { Script } from './token-source.ts';

type Create = Anthropic.MessageCreateParamsNonStreaming;

const LOOK: Anthropic.Tool = {
  name: 'look',
  description: 'Looks.',
  input_schema: { type: 'object', properties: { at: { type: 'string' } } },
};

let stack: Stack;
let anthropic: Anthropic;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_HEARTBEAT_MS: '100', SLUICE_METRICS: 'open', SLUICE_MAX_QUEUED_TOKENS: '20000' } });
  anthropic = clientOf(stack.gateway.key);
});
afterAll(() => stack.stop());
afterEach(() => stack.source.resume());

const clientOf = (apiKey: string, maxRetries = 0) => new Anthropic({ baseURL: stack.gateway.url, apiKey, authToken: null, maxRetries });
const ask = (script: Script | string, more: object = {}): Create => ({
  ...{ model: 'default', max_tokens: 100, messages: [{ role: 'user', content: contentOf(script) }] },
  ...more,
});
const contentOf = (script: Script | string) => (typeof script === 'string' ? script : JSON.stringify(script));
const raw = (body: unknown, headers: Record<string, string> = { 'x-api-key': stack.gateway.key }, path = '/v1/messages') =>
  fetch(`${stack.gateway.url}${path}`, { method: 'POST', headers, body: typeof body === 'string' ? body : JSON.stringify(body) });
const lastJob = () => stack.source.jobs.get(stack.source.taken.at(-1)!)!;
const lastMessages = () => {
  const { prompt } = lastJob();
  return prompt.kind === 'chat' ? prompt.messages : [];
};

/** Without what the client's gatherer adds. */
const own = ({ parsed_output: _, ...message }: Anthropic.Message & { parsed_output?: unknown }) => message;
const eventsOf = (text: string) => parseSse(text.replace(/^retry: \d+\n/, '')).events;

async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const one of stream) list.push(one);
  return list;
}

/** The error that the client threw. */
async function failure(call: Promise<unknown>): Promise<InstanceType<typeof Anthropic.APIError>> {
  try {
    await call;
  } catch (thrown) {
    if (thrown instanceof Anthropic.APIError) return thrown;
    throw thrown;
  }
  throw new Error('It was answered.');
}

describe('an answer', () => {
  test('whole, with its usage', async () => {
    const message = await anthropic.messages.create(ask('a short answer', { system: 'Be brief.', temperature: 0 }));
    expect(message).toEqual({
      ...{ id: expect.stringMatching(/^msg_\w{32}$/), type: 'message', role: 'assistant', model: 'test-model' },
      content: [{ type: 'text', text: 'a short answer', citations: null }],
      ...{ stop_reason: 'end_turn', stop_sequence: null, stop_details: null, container: null },
      usage: {
        ...{ input_tokens: 23, cache_creation: null, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
        ...{ output_tokens: 3, server_tool_use: null, service_tier: 'standard' },
      },
    });
    expect(lastMessages()).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'a short answer' },
    ]);
    expect(lastJob()).toMatchObject({ sampling: { temperature: 0 }, stopping: { maxTokens: 100 }, serviceClass: 'default' });
  });

  test('cut off by its length, or by a stop sequence, which it names', async () => {
    expect(await anthropic.messages.create(ask('one two three', { max_tokens: 2 }))).toMatchObject({
      ...{ content: [{ text: 'one two ' }], stop_reason: 'max_tokens', stop_sequence: null },
    });
    const stopped = await anthropic.messages.create(ask({ pieces: ['one ', 'END', 'two'] }, { stop_sequences: ['never', 'END'] }));
    expect(stopped).toMatchObject({ content: [{ text: 'one ' }], stop_reason: 'stop_sequence', stop_sequence: 'END' });
    const events = await all(await anthropic.messages.create({ ...ask({ pieces: ['END'] }, { stop_sequences: ['END'] }), stream: true }));
    expect(events.map(({ type }) => type)).toEqual(['message_start', 'message_delta', 'message_stop']);
    expect(events[1]).toMatchObject({ delta: { stop_reason: 'stop_sequence', stop_sequence: 'END' } });
  });

  test('of everything that a request may say', async () => {
    await anthropic.messages.create(
      ask('x', {
        ...{
          system: [
            { type: 'text', text: 'Be ' },
            { type: 'text', text: 'brief.', cache_control: { type: 'ephemeral' } },
          ],
        },
        ...{ top_k: 5, top_p: 0.5, temperature: 1, stop_sequences: ['END'], metadata: { user_id: 'u' }, service_tier: 'standard_only' },
        ...{ thinking: { type: 'disabled' }, tools: [], output_config: { format: { type: 'json_schema', schema: { type: 'object' } } } },
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'What is ' },
              { type: 'text', text: 'it?' },
            ],
          },
          { role: 'user', content: 'Look!' },
          {
            role: 'assistant',
            content: [
              { type: 'thinking', thinking: 'hm', signature: 's' },
              { type: 'text', text: 'I look.' },
              { type: 'tool_use', id: 'toolu_1', name: 'look', input: { at: 'it' } },
            ],
          },
          {
            role: 'user',
            content: [
              { type: 'tool_result', tool_use_id: 'toolu_1', content: [{ type: 'text', text: 'a cat' }] },
              { type: 'text', text: 'x' },
            ],
          },
        ],
      }),
    );
    expect(lastMessages()).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'What is it?\n\nLook!' },
      {
        ...{ role: 'assistant', content: 'I look.', reasoning: 'hm' },
        toolCalls: [{ id: 'toolu_1', type: 'function', function: { name: 'look', arguments: '{"at":"it"}' } }],
      },
      { role: 'tool', content: 'a cat', toolCallId: 'toolu_1' },
      { role: 'user', content: 'x' },
    ]);
    expect(lastJob()).toMatchObject({
      ...{ sampling: { temperature: 1, topK: 5, topP: 0.5 }, stopping: { stop: ['END'] } },
      structure: { kind: 'schema', param: 'output_config.format', schema: { type: 'object' } },
    });
  });

  test('streamed, event for event, and gathered by the client itself', async () => {
    const script: Script = { pieces: ['Hé', '🌊'], stepMs: 20 };
    const reply = await raw({ ...ask(script), stream: true });
    expect(reply.headers.get('content-type')).toMatch(/^text\/event-stream/);
    const told = eventsOf(await reply.text());
    for (const { event, data } of told) expect(JSON.parse(data).type).toBe(event);
    expect(told.map(({ event }) => event)).toEqual([
      ...['message_start', 'content_block_start', 'content_block_delta', 'content_block_delta'],
      ...['content_block_stop', 'message_delta', 'message_stop'],
    ]);
    const stream = anthropic.messages.stream(ask(script));
    const texts: string[] = [];
    stream.on('text', text => texts.push(text));
    const message = await stream.finalMessage();
    expect(texts).toEqual(['Hé', '🌊']);
    expect(message).toMatchObject({
      ...{ content: [{ type: 'text', text: 'Hé🌊' }], stop_reason: 'end_turn' },
      usage: { input_tokens: expect.any(Number), output_tokens: 2 },
    });
    const { content: _, ...whole } = await anthropic.messages.create(ask(script));
    expect(Object.keys(own(message)).sort()).toEqual([...Object.keys(whole), 'content'].sort());
  });

  test('read on by its id after the connection broke', async () => {
    const body = { ...ask({ pieces: ['a', 'b', 'c'], stepMs: 20 }), stream: true };
    const reply = await raw(body, { 'x-api-key': stack.gateway.key, 'x-sluice-resumable': 'true' });
    const id = reply.headers.get('x-sluice-stream-id');
    const whole = eventsOf(await reply.text());
    const seen = whole.findIndex(({ data }) => data.includes('"text":"a"'));
    const rest = await fetch(`${stack.gateway.url}/v1/streams/${id}`, {
      headers: { 'x-api-key': stack.gateway.key, 'last-event-id': whole[seen]!.id! },
    });
    expect(eventsOf(await rest.text())).toEqual(whole.slice(seen + 1));
  });

  test('left by its client, its work is stopped', async () => {
    const stream = anthropic.messages.stream(ask({ pieces: ['on '], repeat: 5_000, stepMs: 20 }, { max_tokens: 5_000 }));
    stream.on('text', () => stream.abort());
    await expect(stream.finalMessage()).rejects.toThrow(Anthropic.APIUserAbortError);
    const id = stack.source.taken.at(-1)!;
    await eventually('its work to be stopped', () => stack.source.cancelled.includes(id));
  });

  test('one that is deterministic is told again from the cache, in either form', async () => {
    const body = ask({ pieces: ['same ', 'END', 'more'] }, { temperature: 0, stop_sequences: ['END'] });
    const first = await anthropic.messages.create(body);
    const { data: second, response } = await anthropic.messages.create(body).withResponse();
    expect(response.headers.get('x-sluice-cache')).toBe('hit');
    expect({ ...second, id: first.id }).toEqual(first);
    const streamed = await anthropic.messages.stream(body).finalMessage();
    expect({ ...own(streamed), id: first.id }).toEqual(first);
    expect(first.stop_sequence).toBe('END');
  });
});

test('the tokens of a prompt are counted, and are those that its answer tells', async () => {
  const prompt = { model: 'default', system: 'Be brief.', messages: [{ role: 'user' as const, content: 'one two three' }] };
  // The stand-in's tokens are words of the question.
  expect(await anthropic.messages.countTokens(prompt)).toEqual({ input_tokens: 3 });
  expect(lastJob()).toMatchObject({
    task: { kind: 'tokenize', addGenerationPrompt: true },
    prompt: { messages: [{ content: 'Be brief.' }, { content: 'one two three' }] },
  });
  const long = 'word '.repeat(300_000);
  const refused = await failure(anthropic.messages.countTokens({ ...prompt, messages: [{ role: 'user', content: long }] }));
  expect([refused.status, refused.details]).toEqual([400, { error_code: 'invalid_value', param: 'messages' }]);
});

test('values for the template go with the prompt and with its count', async () => {
  const chat_template_kwargs = { enable_thinking: false, style: 'short' };
  await anthropic.messages.create(ask('x', { chat_template_kwargs }));
  expect(lastJob().prompt).toMatchObject({ templateValues: chat_template_kwargs });
  const count = { model: 'default', messages: [{ role: 'user' as const, content: 'x' }] };
  await anthropic.messages.countTokens({ ...count, chat_template_kwargs } as Anthropic.MessageCountTokensParams);
  expect(lastJob()).toMatchObject({ task: { kind: 'tokenize' }, prompt: { templateValues: chat_template_kwargs } });
  const bad = { chat_template_kwargs: { messages: true } };
  for (const call of [() => anthropic.messages.create(ask('x', bad)), () => anthropic.messages.countTokens({ ...count, ...bad })]) {
    const { status, details } = await failure(call());
    expect([status, details]).toEqual([400, { error_code: 'invalid_value', param: 'chat_template_kwargs.messages' }]);
  }
});

describe('thinking', () => {
  const SCRIPT: Script = { ...twoCalls('look'), reasoning: ['Hm, ', 'so.'] };
  const THOUGHT = { type: 'thinking', thinking: 'Hm, so.', signature: '' };

  test('is a block in front of the others, whole and streamed, which may come back', async () => {
    const body = ask(SCRIPT, { tools: [LOOK], thinking: { type: 'enabled', budget_tokens: 1_024 } });
    const message = await anthropic.messages.create(body);
    expect(message.content.map(({ type }) => type)).toEqual(['thinking', 'text', 'tool_use', 'tool_use']);
    expect(message.content[0]).toEqual(THOUGHT);
    const pieces: string[] = [];
    const streamed = await anthropic.messages
      .stream(body)
      .on('thinking', piece => pieces.push(piece))
      .finalMessage();
    expect([streamed.content[0], pieces]).toEqual([THOUGHT, ['Hm, ', 'so.']]);
    const results = message.content.flatMap(block =>
      block.type === 'tool_use' ? { type: 'tool_result' as const, tool_use_id: block.id, content: 'a cat' } : [],
    );
    await anthropic.messages.create({
      ...body,
      messages: [...body.messages, { role: 'assistant', content: message.content }, { role: 'user', content: results }],
    });
    expect(lastMessages()[1]).toMatchObject({ role: 'assistant', content: 'I look.', reasoning: 'Hm, so.' });
  });

  test.each<[object, object]>([
    [{}, { enable_thinking: false }],
    [{ thinking: { type: 'disabled' } }, { enable_thinking: false }],
    [{ thinking: { type: 'enabled', budget_tokens: 1_024 } }, { enable_thinking: true }],
    [{ thinking: { type: 'adaptive' } }, { enable_thinking: true }],
    [{ chat_template_kwargs: { enable_thinking: true, style: 'x' } }, { enable_thinking: true, style: 'x' }],
  ])('%j is told to the template, for the answer and for the count', async (more, templateValues) => {
    await anthropic.messages.create(ask('x', more));
    expect((lastJob().prompt as { templateValues?: object }).templateValues).toEqual(templateValues);
    const count = { model: 'default', messages: [{ role: 'user' as const, content: 'x' }], ...more };
    await anthropic.messages.countTokens(count as Anthropic.MessageCountTokensParams);
    expect((lastJob().prompt as { templateValues?: object }).templateValues).toEqual(templateValues);
  });
});

test.each<[object | undefined, number | undefined]>([
  [{ type: 'enabled', budget_tokens: 1_024 }, 1_024],
  [{ type: 'enabled', budget_tokens: null }, undefined],
  [{ type: 'adaptive', budget_tokens: 7 }, undefined],
  [{ type: 'disabled', budget_tokens: 7 }, undefined],
  [undefined, undefined],
])('thinking of %j may take %j tokens', async (thinking, most) => {
  await anthropic.messages.create(ask('x', { thinking }));
  expect(lastJob().stopping.maxReasoningTokens).toBe(most);
});

describe('tools', () => {
  const CALLS = twoCalls('look');
  const CONTENT = [
    { type: 'text', text: 'I look.', citations: null },
    { type: 'tool_use', id: expect.stringMatching(/^toolu_\w+0000$/), name: 'look', input: { at: 'it' }, caller: { type: 'direct' } },
    { type: 'tool_use', id: expect.stringMatching(/^toolu_\w+0001$/), name: 'look', input: {}, caller: { type: 'direct' } },
  ];

  test('calls whole and streamed, which take their results', async () => {
    const body = ask(CALLS, { tools: [LOOK] });
    const message = await anthropic.messages.create(body);
    expect(message).toMatchObject({ content: CONTENT, stop_reason: 'tool_use' });
    const pieces: string[] = [];
    const streamed = await anthropic.messages
      .stream(body)
      .on('inputJson', piece => pieces.push(piece))
      .finalMessage();
    expect(streamed).toMatchObject({ content: CONTENT, stop_reason: 'tool_use' });
    expect(pieces.join('')).toBe('{"at":"it"}{}');
    const results = message.content.flatMap(block =>
      block.type === 'tool_use' ? { type: 'tool_result' as const, tool_use_id: block.id, content: 'a cat', is_error: false } : [],
    );
    await anthropic.messages.create({
      ...body,
      messages: [...body.messages, { role: 'assistant', content: message.content }, { role: 'user', content: results }],
    });
    const [, call, ...answers] = lastMessages();
    expect(call).toMatchObject({ content: 'I look.', toolCalls: [{ function: { name: 'look', arguments: '{"at":"it"}' } }, {}] });
    expect(answers).toEqual(results.map(({ tool_use_id }) => ({ role: 'tool', content: 'a cat', toolCallId: tool_use_id })));
  });

  test.each<[choice: Anthropic.ToolChoice | undefined, toolUse: object | undefined]>([
    [undefined, { choice: 'auto', isParallel: true }],
    [
      { type: 'auto', disable_parallel_tool_use: true },
      { choice: 'auto', isParallel: false },
    ],
    [{ type: 'any' }, { choice: 'required', isParallel: true }],
    [
      { type: 'any', disable_parallel_tool_use: true },
      { choice: 'required', isParallel: false },
    ],
    [
      { type: 'tool', name: 'add' },
      { choice: 'required', names: ['add'], isParallel: false },
    ],
    [{ type: 'none' }, undefined],
  ])('the choice %j', async (tool_choice, toolUse) => {
    const tools = [
      LOOK,
      { name: 'add', input_schema: { type: 'object' as const }, strict: true, cache_control: { type: 'ephemeral' as const } },
    ];
    await anthropic.messages.create(ask('x', { tools, ...(tool_choice && { tool_choice }) }));
    expect(lastJob().toolUse).toEqual(toolUse && { ...toolUse, strictNames: ['add'], schemaParam: 'tools[].input_schema' });
    const prompted = [
      { type: 'function', function: { name: 'look', description: 'Looks.', parameters: LOOK.input_schema } },
      { type: 'function', function: { name: 'add', parameters: { type: 'object' } } },
    ];
    expect((lastJob().prompt as { tools?: object }).tools).toEqual(toolUse && prompted);
    await anthropic.messages.countTokens({ model: 'default', messages: ask('x').messages, tools, ...(tool_choice && { tool_choice }) });
    expect((lastJob().prompt as { tools?: object }).tools).toEqual(toolUse && prompted);
  });

  test('left after each of its events, a stream of calls is read on by its id', async () => {
    const reply = await raw({ ...ask(CALLS, { tools: [LOOK] }), stream: true }, { 'x-api-key': stack.gateway.key });
    const id = reply.headers.get('x-sluice-stream-id');
    const whole = eventsOf(await reply.text());
    const told = (events: typeof whole) => events.map(({ event, data }) => [event, data]);
    const ids = [...new Set(whole.flatMap(event => event.id ?? []))];
    expect(ids.length).toBeGreaterThan(5);
    for (const seen of ids.slice(0, -1)) {
      const rest = await fetch(`${stack.gateway.url}/v1/streams/${id}`, {
        headers: { 'x-api-key': stack.gateway.key, 'last-event-id': seen },
      });
      // What follows the frame with the id is not seen, whether it has an id of its own or not.
      expect(told(eventsOf(await rest.text()))).toEqual(told(whole.slice(1 + whole.findIndex(event => event.id === seen))));
    }
  });

  test('a reply from the cache has the same calls, under ids of its own', async () => {
    const body = ask(CALLS, { tools: [LOOK], temperature: 0 });
    const first = await anthropic.messages.create(body);
    const { data: second, response } = await anthropic.messages.create(body).withResponse();
    expect(response.headers.get('x-sluice-cache')).toBe('hit');
    const streamed = await anthropic.messages.stream(body).finalMessage();
    for (const message of [second, streamed]) expect(message).toMatchObject({ content: CONTENT, stop_reason: 'tool_use' });
    const ids = [first, second, streamed].flatMap(({ content }) => content.flatMap(block => (block.type === 'tool_use' ? block.id : [])));
    expect(new Set(ids).size).toBe(6);
  });
});

describe('refused', () => {
  test.each<[object, string, string]>([
    [{ max_tokens: undefined }, 'max_tokens', 'missing_required_parameter'],
    [{ max_tokens: 0 }, 'max_tokens', 'invalid_value'],
    [{ messages: undefined }, 'messages', 'missing_required_parameter'],
    [{ messages: [] }, 'messages', 'invalid_value'],
    [{ messages: [{ role: 'tool', content: 'x' }] }, 'messages[0].role', 'invalid_value'],
    [{ messages: [{ role: 'user', content: [] }] }, 'messages[0].content', 'invalid_value'],
    [{ messages: [{ role: 'user', content: [{ type: 'text', text: 7 }] }] }, 'messages[0].content[0].text', 'invalid_value'],
    [{ messages: [{ role: 'user', content: [{ type: 'sound' }] }] }, 'messages[0].content[0].type', 'invalid_value'],
    [{ messages: [{ role: 'user', content: [{ type: 'image', source: {} }] }] }, 'messages[0].content[0]', 'unsupported_parameter'],
    [
      { messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'none' }] }] },
      'messages[0].content[0].tool_use_id',
      'invalid_value',
    ],
    [
      {
        messages: [
          { role: 'user', content: 'x' },
          { role: 'assistant', content: 'The' },
        ],
      },
      'messages',
      'invalid_value',
    ],
    [{ system: 7 }, 'system', 'invalid_value'],
    [{ temperature: 1.5 }, 'temperature', 'invalid_value'],
    [{ top_p: 0 }, 'top_p', 'invalid_value'],
    [{ stop_sequences: [''] }, 'stop_sequences[0]', 'invalid_value'],
    [{ stop_sequences: 'END' }, 'stop_sequences', 'invalid_value'],
    [{ tools: [{ name: 'look' }] }, 'tools[0].input_schema', 'missing_required_parameter'],
    [{ tools: [{ type: 'custom', name: 'a b', input_schema: {} }] }, 'tools[0].name', 'invalid_value'],
    [{ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, 'tools[0].type', 'unsupported_parameter'],
    [{ tools: [LOOK, { ...LOOK, input_schema: { type: 'array' } }] }, 'tools[1].name', 'invalid_value'],
    [{ tools: [{ ...LOOK, input_schema: { type: 'array' } }] }, 'tools[0].input_schema.type', 'invalid_value'],
    [{ tools: [LOOK], tool_choice: { type: 'tool', name: 'see' } }, 'tool_choice.name', 'invalid_value'],
    [{ tools: [LOOK], tool_choice: { type: 'tool' } }, 'tool_choice.name', 'missing_required_parameter'],
    [{ tools: [LOOK], tool_choice: { type: 'required' } }, 'tool_choice.type', 'invalid_value'],
    [{ tools: [LOOK], tool_choice: 'any' }, 'tool_choice', 'invalid_value'],
    [{ tool_choice: { type: 'any' } }, 'tool_choice', 'invalid_value'],
    [{ thread: { type: 'create' } }, 'thread', 'thread_unsupported_request'],
    [{ thread: { type: 'continue', previous_message_id: 'msg_1' }, messages: [] }, 'thread', 'thread_unsupported_request'],
    [{ thinking: { type: 'deep' } }, 'thinking.type', 'invalid_value'],
    [{ thinking: { type: 'enabled', budget_tokens: 'all' } }, 'thinking.budget_tokens', 'invalid_value'],
    [{ metadata: { user_id: 7 } }, 'metadata.user_id', 'invalid_value'],
    [{ output_config: { format: { type: 'json_schema' } } }, 'output_config.format.schema', 'missing_required_parameter'],
  ])('%j', async (more, param, code) => {
    const takenCount = stack.source.taken.length;
    const error = await failure(anthropic.messages.create({ ...ask('x'), ...more }));
    expect(error).toBeInstanceOf(Anthropic.BadRequestError);
    expect([error.type, error.details]).toEqual(['invalid_request_error', { error_code: code, param }]);
    expect(stack.source.taken.length).toBe(takenCount);
  });

  test('in their own words, by whichever part refuses', async () => {
    const cases: [() => Promise<unknown>, number, string, string][] = [
      [() => clientOf('sk-sluice-none').messages.create(ask('x')), 401, 'authentication_error', 'invalid_api_key'],
      [() => anthropic.messages.create(ask('x', { model: 'claude-none' })), 404, 'not_found_error', 'model_not_found'],
      [
        () => anthropic.messages.create(ask({ error: { code: 'context_length_exceeded', message: 'Too long.' } })),
        400,
        'invalid_request_error',
        'context_length_exceeded',
      ],
      [
        () => anthropic.messages.create(ask({ error: { code: 'generation_failed', message: 'No luck.' } })),
        500,
        'api_error',
        'generation_failed',
      ],
    ];
    for (const [call, status, type, code] of cases) {
      const error = await failure(call());
      expect([error.status, error.type, error.errorCode]).toEqual([status, type, code]);
      expect(error.requestID).toMatch(/^req_/);
      expect(error.error).toMatchObject({ type: 'error', request_id: error.requestID });
    }
    const wrongMethod = await fetch(`${stack.gateway.url}/v1/messages`, { headers: { 'x-api-key': stack.gateway.key } });
    expect([wrongMethod.status, wrongMethod.headers.get('allow')]).toEqual([405, 'POST']);
    expect(await wrongMethod.json()).toMatchObject({ type: 'error', error: { type: 'invalid_request_error' } });
    const unknown = await raw({}, undefined, '/v1/messages/batches');
    expect([unknown.status, await unknown.json()]).toMatchObject([404, { error: { type: 'not_found_error' } }]);
    for (const body of ['', '[]', '{"model":', 'null', '{"a":1e999}']) {
      expect(await (await raw(body)).json()).toMatchObject({ type: 'error', error: { type: 'invalid_request_error' } });
    }
  });

  test("by a limit: of the key's own, and by a queue that is full for everybody", async () => {
    const { key } = await adminClient(stack.gateway).makeKey({ tenant: 'narrow', limits: { requests_per_minute: 1 } });
    const narrow = clientOf(key);
    expect((await narrow.messages.create(ask('once'))).content).toHaveLength(1);
    // Also from what the gateway remembers of the first refusal.
    for (const _ of [1, 2]) {
      const error = await failure(narrow.messages.create(ask('twice')));
      expect([error.status, error.type]).toEqual([429, 'rate_limit_error']);
      expect(Number(error.headers?.get('retry-after'))).toBeGreaterThan(0);
    }
    await stack.source.hold();
    const waiting = anthropic.messages.create(ask('wait '.repeat(20_000)));
    await eventually('it to wait', async () => (await queuedCount()) === 1);
    const error = await failure(anthropic.messages.create(ask('x')));
    expect([error.status, error.type, error.errorCode]).toEqual([529, 'overloaded_error', 'queue_full']);
    expect(Number(error.headers?.get('retry-after'))).toBeGreaterThan(0);
    stack.source.resume();
    await waiting;
  });

  test('in the middle of a stream, as an event', async () => {
    const script: Script = { pieces: ['a', 'b'], stepMs: 20, error: { code: 'generation_failed', message: 'No luck.', at: 1 } };
    const told = eventsOf(await (await raw({ ...ask(script), stream: true })).text());
    expect(told.at(-1)!.event).toBe('error');
    expect(JSON.parse(told.at(-1)!.data)).toEqual({
      ...{ type: 'error', request_id: null },
      error: { type: 'api_error', message: 'No luck.', details: { error_code: 'generation_failed', param: null } },
    });
    const error = await failure(anthropic.messages.stream(ask(script)).finalMessage());
    expect(error.type).toBe('api_error');
  });
});

test('it is limited, billed and counted like every other call', async () => {
  const admin = adminClient(stack.gateway);
  const { key } = await admin.makeKey({ tenant: 'billed' });
  const { response } = await clientOf(key).messages.create(ask('one two three')).withResponse();
  expect(response.headers.get('x-ratelimit-limit-requests')).toBe('1000000000');
  await eventually('the ledger', async () => {
    const reply = await fetch(`${stack.gateway.url}/admin/usage?tenant=billed`, {
      headers: { authorization: `Bearer ${stack.gateway.key}` },
    });
    const { data } = (await reply.json()) as { data: { requests: number; completion_tokens: number }[] };
    return data[0]?.requests === 1 && data[0].completion_tokens === 3;
  });
  const page = await (await fetch(`${stack.gateway.url}/metrics`)).text();
  expect(page).toMatch(/sluice_gateway_requests_total\{route="\/v1\/messages",method="POST",status="200"\} [1-9]/);
});

test('the key may come in either header', async () => {
  const both = { authorization: `Bearer ${stack.gateway.key}`, 'x-api-key': 'ignored' };
  for (const headers of [{ authorization: `Bearer ${stack.gateway.key}` }, { 'x-api-key': stack.gateway.key }, both]) {
    expect((await raw(ask('x'), { 'anthropic-version': '2023-06-01', ...headers })).status).toBe(200);
  }
  expect((await raw(ask('x'), { 'x-api-key': '' })).status).toBe(401);
  expect((await raw(ask('x'), {})).status).toBe(401);
  const models = await fetch(`${stack.gateway.url}/v1/models`, { headers: { 'x-api-key': stack.gateway.key } });
  expect(models.status).toBe(200);
});

async function queuedCount(): Promise<number> {
  const reply = await fetch(`${stack.gateway.url}/admin/queues`, { headers: { authorization: `Bearer ${stack.gateway.key}` } });
  const { data } = (await reply.json()) as { data: { waiting_count: number }[] };
  return data.reduce((sum, queue) => sum + queue.waiting_count, 0);
}
