/** /v1/responses as OpenAI's own client uses it: whole, streamed, in the background, asked for again from any event on, over restarts of the gateway. */
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { adminClient } from './admin-client.ts';
import { twoCalls } from './call-scripts.ts';
import { eventually, type Stack, startStack } from './stack.ts';
import type { Script } from './token-source.ts';

type Create = Omit<OpenAI.Responses.ResponseCreateParamsNonStreaming, 'stream'>;

let stack: Stack;
let openai: OpenAI;
beforeAll(async () => {
  stack = await startStack({ bindings: { SLUICE_HEARTBEAT_MS: '200', SLUICE_RESUME_GRACE_MS: '500' } });
  openai = clientOf(stack.gateway.key);
});
afterAll(() => stack.stop());
afterEach(() => stack.source.resume());

const clientOf = (apiKey: string) => new OpenAI({ baseURL: `${stack.gateway.url}/v1`, apiKey, maxRetries: 0 });
const ask = (script: Script | string, more: Partial<Create> = {}): Create => ({
  ...{ model: 'default', input: typeof script === 'string' ? script : JSON.stringify(script) },
  ...more,
});
const lastJob = () => stack.source.jobs.get(stack.source.taken.at(-1)!)!;
const lastMessages = () => {
  const { prompt } = lastJob();
  return prompt.kind === 'chat' ? prompt.messages : [];
};

async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const one of stream) list.push(one);
  return list;
}

/** Until it is over, whatever happens to the gateway meanwhile. */
async function ended(id: string): Promise<OpenAI.Responses.Response> {
  for (;;) {
    const response = await openai.responses.retrieve(id).catch(() => undefined);
    if (response !== undefined && response.status !== 'queued' && response.status !== 'in_progress') return response;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

const LOOK: OpenAI.Responses.FunctionTool = {
  ...{ type: 'function', name: 'look', description: 'Looks.', strict: true },
  parameters: { type: 'object', properties: { at: { type: 'string' } } },
};
const ADD: OpenAI.Responses.FunctionTool = { type: 'function', name: 'add', parameters: null, strict: null };
const CALLS = twoCalls('add');

const STREAMED = [
  ...['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added'],
  ...['response.output_text.delta', 'response.output_text.delta'],
  ...['response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.completed'],
];

describe('in the foreground', () => {
  test('whole, with its usage and what was asked', async () => {
    const response = await openai.responses.create(
      ask('a short answer', { instructions: 'Be brief.', metadata: { of: 'a test' }, temperature: 0, max_output_tokens: 50 }),
    );
    expect(response).toMatchObject({
      ...{ id: expect.stringMatching(/^resp_\w+$/), object: 'response', status: 'completed', output_text: 'a short answer' },
      ...{ model: 'test-model', instructions: 'Be brief.', metadata: { of: 'a test' }, temperature: 0, max_output_tokens: 50 },
      ...{ error: null, incomplete_details: null, background: false, tools: [], previous_response_id: null },
      usage: { output_tokens: 3, input_tokens: expect.any(Number), output_tokens_details: { reasoning_tokens: 0 } },
      output: [{ type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', annotations: [] }] }],
    });
    expect(lastMessages()).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'a short answer' },
    ]);
    expect(await openai.responses.retrieve(response.id)).toEqual(response);
  });

  test('a conversation, with earlier answers as they came', async () => {
    const first = await openai.responses.create(ask('one'));
    const input: OpenAI.Responses.ResponseInput = [
      { role: 'developer', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'input_text', text: 'one' }] },
      ...(first.output as OpenAI.Responses.ResponseOutputMessage[]),
      { type: 'message', role: 'user', content: 'two' },
    ];
    expect((await openai.responses.create({ model: 'default', input })).output_text).toBe('two');
    expect(lastMessages().map(({ role, content }) => [role, content])).toEqual([
      ['system', 'Be brief.'],
      ['user', 'one'],
      ['assistant', 'one'],
      ['user', 'two'],
    ]);
  });

  test('cut off by its length', async () => {
    const response = await openai.responses.create(ask('one two three', { max_output_tokens: 2 }));
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' }, output_text: 'one two ' });
  });

  test('streamed, event for event, and gathered by the client itself', async () => {
    const events = await all(await openai.responses.create({ ...ask({ pieces: ['Hé', '🌊'], stepMs: 20 }), stream: true }));
    expect(events.map(({ type }) => type)).toEqual(STREAMED);
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, index) => index));
    expect(events.at(-1)).toMatchObject({
      response: { status: 'completed', output: [{ content: [{ text: 'Hé🌊' }] }], usage: { output_tokens: 2 } },
    });
    const gathered = await openai.responses.stream(ask({ pieces: ['a', 'b'], stepMs: 20 })).finalResponse();
    expect(gathered.output_text).toBe('ab');
  });

  test('what goes wrong before the first word is a status, afterwards an event', async () => {
    const early: Script = { error: { code: 'context_length_exceeded', message: 'Too long.', param: 'input' } };
    await expect(openai.responses.create(ask(early))).rejects.toMatchObject({ status: 400, code: 'context_length_exceeded' });
    const late: Script = { pieces: ['a', 'b'], error: { code: 'generation_failed', message: 'No luck.', at: 1 } };
    const events = await all(await openai.responses.create({ ...ask(late), stream: true }));
    const failed = { type: 'response.failed', response: { status: 'failed', error: { code: 'server_error', message: 'No luck.' } } };
    expect(events.at(-1)).toMatchObject(failed);
    const { id } = (events[0] as OpenAI.Responses.ResponseCreatedEvent).response;
    expect(await openai.responses.retrieve(id)).toMatchObject({ status: 'failed', error: { code: 'server_error' }, output_text: 'a' });
    const again = await all(await openai.responses.retrieve(id, { stream: true, starting_after: 3 }));
    expect(again.map(({ type }) => type)).toEqual(['response.output_text.delta', 'response.failed']);
  });

  test('held to a form, which the reply repeats', async () => {
    const schema = { type: 'object', properties: { city: { type: 'string' } } };
    const format = { type: 'json_schema' as const, name: 'city', schema };
    const response = await openai.responses.create(ask('{"city":"Paris"}', { text: { format } }));
    const { structure } = stack.source.jobs.get(response.id)!;
    expect(structure).toEqual({ kind: 'schema', param: 'text.format', schema });
    expect(response.text).toEqual({ format: { ...format, description: null, strict: true } });
    const free = await openai.responses.create(ask('{}', { text: { format: { type: 'json_object' } } }));
    expect(stack.source.jobs.get(free.id)!.structure).toEqual({ kind: 'json', param: 'text.format' });
    expect(free.text).toEqual({ format: { type: 'json_object' } });
    const parsed = await openai.responses.parse(ask({ pieces: ['{"city":', '"Paris"}'] }, { text: { format } }));
    expect(parsed.output_parsed).toEqual({ city: 'Paris' });
  });

  test('values for the template go with its prompt, and are not those of what goes on from it', async () => {
    const values = { chat_template_kwargs: { enable_thinking: false, style: 'short' } };
    const first = await openai.responses.create(ask('x', values as Partial<Create>));
    expect(lastJob().prompt).toMatchObject({ templateValues: values.chat_template_kwargs });
    await openai.responses.create(ask('y', { previous_response_id: first.id }));
    expect(lastJob().prompt).not.toHaveProperty('templateValues');
    const bad = { chat_template_kwargs: { tools: [] } } as Partial<Create>;
    await expect(openai.responses.create(ask('x', bad))).rejects.toMatchObject({ status: 400, param: 'chat_template_kwargs.tools' });
  });

  test('what it was asked, page by page', async () => {
    const input: OpenAI.Responses.ResponseInput = [
      { role: 'user', content: [{ type: 'input_text', text: 'one' }] },
      { role: 'assistant', content: 'two' },
      { role: 'user', content: 'three' },
    ];
    const { id } = await openai.responses.create({ model: 'default', input, instructions: 'Be brief.' });
    const listed = await all(openai.responses.inputItems.list(id, { order: 'asc', limit: 2 }));
    expect(listed).toEqual([
      { id: listed[0]!.id, type: 'message', status: 'completed', role: 'user', content: [{ type: 'input_text', text: 'one' }] },
      {
        ...{ id: listed[1]!.id, type: 'message', status: 'completed', role: 'assistant' },
        content: [{ type: 'output_text', text: 'two', annotations: [], logprobs: [] }],
      },
      { id: listed[2]!.id, type: 'message', status: 'completed', role: 'user', content: [{ type: 'input_text', text: 'three' }] },
    ]);
    expect(await all(openai.responses.inputItems.list(id))).toEqual(listed.toReversed());
    await expect(openai.responses.inputItems.list(id, { after: 'msg_none' })).rejects.toMatchObject({ status: 400, param: 'after' });
    await expect(openai.responses.inputItems.list(id, { limit: 101 })).rejects.toMatchObject({ status: 400, param: 'limit' });
    const single = await openai.responses.create(ask('all of it'));
    expect(await all(openai.responses.inputItems.list(single.id))).toMatchObject([{ role: 'user', content: [{ text: 'all of it' }] }]);
  });

  test('taken away: it is gone, with its input and its events', async () => {
    const response = await openai.responses.create(ask('a secret'));
    await openai.responses.delete(response.id);
    const gone = { status: 404, code: 'not_found' };
    await expect(openai.responses.retrieve(response.id)).rejects.toMatchObject(gone);
    await expect(openai.responses.inputItems.list(response.id)).rejects.toMatchObject(gone);
    await expect(openai.responses.delete(response.id)).rejects.toMatchObject(gone);
    await eventually('no key of it to be left', async () => (await stack.source.redis.keys(`*${response.id}*`)).length === 0);
  });

  test('taken away while its client reads it: the client gets the rest', async () => {
    const stream = await openai.responses.create({ ...ask({ pieces: ['a', 'b', 'c'], stepMs: 200 }), stream: true });
    const events: OpenAI.Responses.ResponseStreamEvent[] = [];
    for await (const event of stream) {
      events.push(event);
      if (event.type === 'response.created') await openai.responses.delete(event.response.id);
    }
    expect(events.at(-1)).toMatchObject({ type: 'response.completed', response: { output: [{ content: [{ text: 'abc' }] }] } });
    const { id } = (events[0] as OpenAI.Responses.ResponseCreatedEvent).response;
    await expect(openai.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
  });

  test('what is not to be kept is not', async () => {
    const { id } = await openai.responses.create(ask('gone', { store: false }));
    await expect(openai.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
    await expect(openai.responses.inputItems.list(id)).rejects.toMatchObject({ status: 404 });
    expect(await stack.source.redis.keys(`*${id}*:input`)).toEqual([]);
  });
});

describe('tools', () => {
  const tools = [LOOK, ADD];
  type CallItem = OpenAI.Responses.ResponseFunctionToolCall;
  const callsOf = (response: OpenAI.Responses.Response) => response.output.filter(item => item.type === 'function_call') as CallItem[];

  test('calls whole and streamed, asked for again, and their outputs on their way back', async () => {
    const response = await openai.responses.create(ask(CALLS, { tools, parallel_tool_calls: true }));
    expect(response).toMatchObject({
      ...{ status: 'completed', tool_choice: 'auto', parallel_tool_calls: true, output_text: 'I look.' },
      tools: [LOOK, { ...ADD, description: null }],
      output: [
        { type: 'message', content: [{ text: 'I look.' }] },
        { type: 'function_call', status: 'completed', call_id: expect.stringMatching(/^call_/), name: 'look', arguments: '{"at":"it"}' },
        { type: 'function_call', status: 'completed', call_id: expect.stringMatching(/^call_/), name: 'add', arguments: '{}' },
      ],
    });
    expect(await openai.responses.retrieve(response.id)).toEqual(response);
    const streamed = openai.responses.stream(ask(CALLS, { tools }));
    const pieces: string[] = [];
    streamed.on('response.function_call_arguments.delta', ({ delta }) => pieces.push(delta));
    const bare = (calls: CallItem[]) => calls.map(({ name, arguments: json }) => [name, json]);
    expect(bare(callsOf(await streamed.finalResponse()))).toEqual(bare(callsOf(response)));
    expect(pieces.join('')).toBe('{"at":"it"}{}');

    const outputs = callsOf(response).map(({ call_id }) => ({ type: 'function_call_output' as const, call_id, output: 'a cat' }));
    const input = [{ role: 'user' as const, content: 'look' }, ...(response.output as OpenAI.Responses.ResponseInputItem[]), ...outputs];
    const second = await openai.responses.create({ model: 'default', input, tools });
    const [user, call, ...results] = lastMessages();
    expect(user).toEqual({ role: 'user', content: 'look' });
    expect(call).toMatchObject({
      content: 'I look.',
      toolCalls: [{ function: { arguments: '{"at":"it"}' } }, { function: { name: 'add' } }],
    });
    expect(results).toEqual(outputs.map(({ call_id }) => ({ role: 'tool', content: 'a cat', toolCallId: call_id })));
    const items = await all(openai.responses.inputItems.list(second.id, { order: 'asc', limit: 2 }));
    expect(items.map(({ type }) => type)).toEqual([
      ...['message', 'message', 'function_call', 'function_call', 'function_call_output', 'function_call_output'],
    ]);
    expect(new Set(items.map(({ id }) => id)).size).toBe(6);
    expect(items[2]).toMatchObject({ call_id: outputs[0]!.call_id, name: 'look', arguments: '{"at":"it"}' });
    expect(items[4]).toMatchObject({ call_id: outputs[0]!.call_id, output: 'a cat' });
  });

  test.each<[choice: Partial<Create>, toolUse: object | undefined]>([
    [{}, { choice: 'auto', isParallel: true }],
    [{ parallel_tool_calls: false }, { choice: 'auto', isParallel: false }],
    [{ tool_choice: 'required' }, { choice: 'required', isParallel: true }],
    [{ tool_choice: { type: 'function', name: 'add' } }, { choice: 'required', names: ['add'], isParallel: false }],
    [
      { tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'add' }] } },
      { choice: 'auto', names: ['add'], isParallel: true },
    ],
    [{ tool_choice: 'none' }, undefined],
  ])('%j', async (choice, toolUse) => {
    const response = await openai.responses.create(ask('x', { tools, ...choice }));
    expect(lastJob().toolUse).toEqual(toolUse && { ...toolUse, strictNames: ['look'], schemaParam: 'tools[].parameters' });
    const prompted = [
      { type: 'function', function: { name: 'look', description: 'Looks.', parameters: LOOK.parameters } },
      { type: 'function', function: { name: 'add' } },
    ];
    expect((lastJob().prompt as { tools?: object }).tools).toEqual(toolUse && prompted);
    expect(response.tool_choice).toEqual(choice.tool_choice ?? 'auto');
    expect(response.tools).toHaveLength(2);
  });

  test('left after each of its events, a stream of calls is read on by its id and by its numbers', async () => {
    const events = await all(await openai.responses.create({ ...ask(CALLS, { tools }), stream: true }));
    const { id } = (events[0] as OpenAI.Responses.ResponseCreatedEvent).response;
    for (const { sequence_number: seen } of events) {
      const rest = await all(await openai.responses.retrieve(id, { stream: true, starting_after: seen }));
      expect(rest).toEqual(events.slice(seen + 1));
    }
  });
});

describe('reasoning', () => {
  const SCRIPT: Script = { ...CALLS, reasoning: ['Hm, ', 'so.'] };
  const THOUGHT = {
    ...{ id: expect.stringMatching(/^rs_\w+$/), type: 'reasoning', status: 'completed', summary: [] },
    content: [{ type: 'reasoning_text', text: 'Hm, so.' }],
  };

  test('is an item in front of the others, whole, streamed and asked for again', async () => {
    const response = await openai.responses.create(ask(SCRIPT, { tools: [LOOK, ADD] }));
    expect(response.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call', 'function_call']);
    expect(response.output[0]).toEqual(THOUGHT);
    expect(response).toMatchObject({ output_text: 'I look.', usage: { output_tokens: 7, output_tokens_details: { reasoning_tokens: 2 } } });
    expect(await openai.responses.retrieve(response.id)).toEqual(response);
    const events = await all(await openai.responses.create({ ...ask(SCRIPT, { tools: [LOOK, ADD] }), stream: true }));
    expect(events.slice(2, 9).map(({ type }) => type)).toEqual([
      ...['response.output_item.added', 'response.content_part.added', 'response.reasoning_text.delta', 'response.reasoning_text.delta'],
      ...['response.reasoning_text.done', 'response.content_part.done', 'response.output_item.done'],
    ]);
    expect(events[8]).toMatchObject({ output_index: 0, item: THOUGHT });
    const gathered = await openai.responses.stream(ask(SCRIPT, { tools: [LOOK, ADD] })).finalResponse();
    expect(gathered.output[0]).toEqual(THOUGHT);
  });

  test('comes back with what was said after it, by its items or by the earlier response', async () => {
    const first = await openai.responses.create(ask(SCRIPT, { tools: [LOOK, ADD] }));
    const outputs = first.output.flatMap(item =>
      item.type === 'function_call' ? { type: 'function_call_output' as const, call_id: item.call_id, output: 'a cat' } : [],
    );
    const more = { model: 'default', tools: [LOOK, ADD] };
    await openai.responses.create({ ...more, input: outputs, previous_response_id: first.id });
    const going = lastMessages();
    expect(going[1]).toMatchObject({ role: 'assistant', content: 'I look.', reasoning: 'Hm, so.', toolCalls: [{}, {}] });
    const items = first.output as OpenAI.Responses.ResponseInputItem[];
    await openai.responses.create({ ...more, input: [{ role: 'user', content: JSON.stringify(SCRIPT) }, ...items, ...outputs] });
    expect(lastMessages()).toEqual(going);
  });

  test('of several items in a row is all that was said', async () => {
    const thought = (text: string) => ({
      ...{ type: 'reasoning' as const, id: 'rs_1', summary: [], content: [{ type: 'reasoning_text' as const, text }] },
    });
    const said = (content: string) => ({ role: 'assistant' as const, content });
    const input = [
      thought('One.'),
      thought(''),
      thought('Two.'),
      said('a'),
      thought('Three.'),
      said('b'),
      { role: 'user' as const, content: 'go' },
    ];
    await openai.responses.create({ model: 'default', input });
    expect(lastMessages()).toMatchObject([
      { content: 'a', reasoning: 'One.\nTwo.' },
      { content: 'b', reasoning: 'Three.' },
      { role: 'user', content: 'go' },
    ]);
  });

  test('alone, when the length cut it', async () => {
    const cut: Script = { reasoning: ['Hm, '], finishReason: 'length' };
    const response = await openai.responses.create(ask(cut));
    expect(response).toMatchObject({ status: 'incomplete', output: [{ type: 'reasoning', status: 'incomplete' }], output_text: '' });
  });
});

describe('going on from an earlier response', () => {
  test('what it was asked and answered comes first, without its instructions', async () => {
    const first = await openai.responses.create(ask('one', { instructions: 'Be brief.' }));
    const second = await openai.responses.create(ask('two', { previous_response_id: first.id, instructions: 'Be long.' }));
    expect(second).toMatchObject({ previous_response_id: first.id, output_text: 'two' });
    const third = await openai.responses.create(ask('three', { previous_response_id: second.id }));
    expect(lastMessages().map(({ role, content }) => [role, content])).toEqual([
      ...[
        ['user', 'one'],
        ['assistant', 'one'],
        ['user', 'two'],
        ['assistant', 'two'],
        ['user', 'three'],
      ],
    ]);
    expect(await all(openai.responses.inputItems.list(third.id))).toHaveLength(5);
  });

  test('its calls get their outputs', async () => {
    const first = await openai.responses.create(ask(CALLS, { tools: [LOOK, ADD] }));
    const call = first.output.find(item => item.type === 'function_call')!;
    const input = [
      { type: 'function_call_output' as const, call_id: call.call_id, output: [{ type: 'input_text' as const, text: 'a cat' }] },
    ];
    await openai.responses.create({ model: 'default', input, previous_response_id: first.id, tools: [LOOK, ADD] });
    expect(lastMessages().slice(1)).toMatchObject([
      { role: 'assistant', content: 'I look.', toolCalls: [{ id: call.call_id, function: { name: 'look' } }, {}] },
      { role: 'tool', content: 'a cat', toolCallId: call.call_id },
    ]);
  });

  test('not from one that there is not, or no more, or of another tenant, or that is not over, or that has failed', async () => {
    const other = clientOf((await adminClient(stack.gateway).makeKey({ tenant: 'stranger' })).key);
    const secret = await other.responses.create(ask('secret'));
    const unkept = await openai.responses.create(ask('x', { store: false }));
    const gone = await openai.responses.create(ask('x'));
    await openai.responses.delete(gone.id);
    const takenCount = stack.source.taken.length;
    for (const id of ['resp_none', 'no id at all', secret.id, unkept.id, gone.id]) {
      await expect(openai.responses.create(ask('x', { previous_response_id: id }))).rejects.toMatchObject({
        ...{ status: 400, code: 'previous_response_not_found', param: 'previous_response_id' },
      });
    }
    expect(stack.source.taken.length).toBe(takenCount);
    const running = await openai.responses.create(ask({ pieces: ['a', 'b'], stepMs: 5_000 }, { background: true }));
    const notOver = { status: 400, code: 'invalid_value', param: 'previous_response_id' };
    await expect(openai.responses.create(ask('x', { previous_response_id: running.id }))).rejects.toMatchObject(notOver);
    await openai.responses.cancel(running.id);
    await eventually('it to be over', async () => (await openai.responses.retrieve(running.id)).status === 'cancelled');
    await expect(openai.responses.create(ask('x', { previous_response_id: running.id }))).rejects.toMatchObject(notOver);
  });

  test('repeated under its Idempotency-Key it is the same answer, also when the earlier response is gone', async () => {
    const first = await openai.responses.create(ask('one'));
    const body = ask('two', { previous_response_id: first.id });
    const headers = { 'Idempotency-Key': 'goes-on' };
    const second = await openai.responses.create(body, { headers });
    await openai.responses.delete(first.id);
    expect(await openai.responses.create(body, { headers })).toEqual(second);
    await expect(openai.responses.create(body, { headers: { 'Idempotency-Key': 'another' } })).rejects.toMatchObject({
      code: 'previous_response_not_found',
    });
  });
});

describe('in the background', () => {
  test('from queued to its end, without its client', async () => {
    await stack.source.hold();
    const made = await openai.responses.create(ask({ pieces: ['one ', 'two'], stepMs: 700 }, { background: true }));
    expect(made).toMatchObject({ status: 'queued', background: true, output: [], usage: null });
    // Longer than an answer goes on for a client that has left.
    await new Promise(resolve => setTimeout(resolve, 1_000));
    expect((await openai.responses.retrieve(made.id)).status).toBe('queued');
    stack.source.resume();
    await eventually('a part of it', async () => (await openai.responses.retrieve(made.id)).output_text === 'one ');
    expect((await openai.responses.retrieve(made.id)).status).toBe('in_progress');
    expect(await ended(made.id)).toMatchObject({ status: 'completed', output_text: 'one two', usage: { output_tokens: 2 } });
  });

  test('the gateway is killed while it runs', async () => {
    const { id } = await openai.responses.create(ask({ pieces: ['a', 'b', 'c', 'd', 'e'], stepMs: 400 }, { background: true }));
    await eventually('a part of it', async () => (await openai.responses.retrieve(id)).status === 'in_progress');
    await stack.gateway.kill();
    await stack.gateway.revive();
    expect(await ended(id)).toMatchObject({ status: 'completed', output_text: 'abcde' });
  });

  test('its events from any of them on, while it runs and afterwards', async () => {
    const script: Script = { pieces: ['a', 'b', 'c', 'd'], stepMs: 300 };
    const stream = await openai.responses.create({ ...ask(script, { background: true }), stream: true });
    const seen: OpenAI.Responses.ResponseStreamEvent[] = [];
    for await (const event of stream) {
      seen.push(event);
      if (event.type === 'response.output_text.delta') break;
    }
    expect(seen.map(({ type }) => type)).toEqual([
      ...['response.created', 'response.queued', 'response.in_progress'],
      ...['response.output_item.added', 'response.content_part.added', 'response.output_text.delta'],
    ]);
    const { id } = (seen[0] as OpenAI.Responses.ResponseCreatedEvent).response;
    // Nobody listens for longer than the grace.
    await new Promise(resolve => setTimeout(resolve, 700));
    const rest = await all(await openai.responses.retrieve(id, { stream: true, starting_after: seen.at(-1)!.sequence_number }));
    const numbers = [...seen, ...rest].map(({ sequence_number }) => sequence_number);
    expect(numbers).toEqual(numbers.map((_, index) => index));
    const whole = await all(await openai.responses.retrieve(id, { stream: true }));
    expect(whole).toEqual([...seen, ...rest]);
    const deltas = whole.flatMap(event => (event.type === 'response.output_text.delta' ? event.delta : []));
    expect(deltas.join('')).toBe('abcd');
    expect(await all(await openai.responses.retrieve(id, { stream: true, starting_after: 999 }))).toEqual([]);
  });

  test('cancelled while it runs, and while it waits', async () => {
    const endless: Script = { pieces: ['on '], repeat: 5_000, stepMs: 20 };
    const running = await openai.responses.create(ask(endless, { background: true }));
    const listening = all(await openai.responses.retrieve(running.id, { stream: true }));
    await eventually('a part of it', async () => (await openai.responses.retrieve(running.id)).status === 'in_progress');
    expect(await openai.responses.cancel(running.id)).toMatchObject({ id: running.id, status: 'cancelled', error: null });
    await eventually('its work to be stopped', () => stack.source.cancelled.includes(running.id));
    expect((await openai.responses.retrieve(running.id)).status).toBe('cancelled');
    expect((await listening).at(-1)).toMatchObject({ type: 'response.failed', response: { status: 'cancelled' } });

    await stack.source.hold();
    const waiting = await openai.responses.create(ask('never', { background: true }));
    expect((await openai.responses.cancel(waiting.id)).status).toBe('cancelled');
    stack.source.resume();
    expect((await openai.responses.retrieve(waiting.id)).status).toBe('cancelled');
    // Once more does no harm, and one that is over stays as it is.
    expect((await openai.responses.cancel(waiting.id)).status).toBe('cancelled');
    const { id } = await openai.responses.create(ask('done', { background: true }));
    await ended(id);
    expect((await openai.responses.cancel(id)).status).toBe('completed');
  });

  test('taken away while it runs: its work is stopped', async () => {
    const { id } = await openai.responses.create(ask({ pieces: ['on '], repeat: 5_000, stepMs: 20 }, { background: true }));
    await eventually('a part of it', async () => (await openai.responses.retrieve(id)).status === 'in_progress');
    await openai.responses.delete(id);
    await eventually('its work to be stopped', () => stack.source.cancelled.includes(id));
    await expect(openai.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
  });

  test('only there', async () => {
    const { id } = await openai.responses.create(ask('over'));
    await expect(openai.responses.cancel(id)).rejects.toMatchObject({ status: 400 });
  });
});

test('to another tenant it does not exist', async () => {
  const other = clientOf((await adminClient(stack.gateway).makeKey({ tenant: 'other' })).key);
  const { id } = await openai.responses.create(ask('secret', { background: true }));
  await ended(id);
  const notFound = { status: 404, code: 'not_found' };
  await expect(other.responses.retrieve(id)).rejects.toMatchObject(notFound);
  await expect(other.responses.retrieve(id, { stream: true })).rejects.toMatchObject(notFound);
  await expect(other.responses.cancel(id)).rejects.toMatchObject(notFound);
  await expect(other.responses.delete(id)).rejects.toMatchObject(notFound);
  await expect(other.responses.inputItems.list(id)).rejects.toMatchObject(notFound);
  expect((await openai.responses.retrieve(id)).output_text).toBe('secret');
  await expect(openai.responses.retrieve('resp_none')).rejects.toMatchObject(notFound);
  const chat = await openai.chat.completions.create({ model: 'default', messages: [{ role: 'user', content: 'x' }] });
  await expect(openai.responses.retrieve(chat.id)).rejects.toMatchObject(notFound);
});

test.each<[object, string, string]>([
  [{ input: undefined }, 'input', 'missing_required_parameter'],
  [{ input: [] }, 'input', 'invalid_value'],
  [{ input: [{ role: 'tool', content: 'x' }] }, 'input[0].role', 'invalid_value'],
  [{ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] }, 'input[0].content[0]', 'unsupported_parameter'],
  [{ max_output_tokens: 0 }, 'max_output_tokens', 'invalid_value'],
  [{ temperature: 3 }, 'temperature', 'invalid_value'],
  [{ tools: [{ type: 'web_search' }] }, 'tools[0].type', 'unsupported_parameter'],
  [{ tools: [LOOK, { type: 'mcp', server_label: 'x' }] }, 'tools[1].type', 'unsupported_parameter'],
  [{ tools: [{ type: 'function' }] }, 'tools[0].name', 'missing_required_parameter'],
  [{ tools: [{ name: 'look' }] }, 'tools[0].type', 'missing_required_parameter'],
  [{ tools: [{ ...LOOK, name: 'a b' }] }, 'tools[0].name', 'invalid_value'],
  [{ tools: [LOOK, LOOK] }, 'tools[1].name', 'invalid_value'],
  [{ tools: [{ ...LOOK, parameters: { type: 'array' } }] }, 'tools[0].parameters.type', 'invalid_value'],
  [{ tool_choice: 'required' }, 'tool_choice', 'invalid_value'],
  [{ tools: [LOOK], tool_choice: 'any' }, 'tool_choice', 'invalid_value'],
  [{ tools: [LOOK], tool_choice: { type: 'web_search_preview' } }, 'tool_choice.type', 'unsupported_parameter'],
  [{ tools: [LOOK], tool_choice: { type: 'function', name: 'see' } }, 'tool_choice.name', 'invalid_value'],
  [
    { tools: [LOOK], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'see' }] } },
    'tool_choice.tools[0].name',
    'invalid_value',
  ],
  [{ tools: [LOOK], tool_choice: { type: 'allowed_tools', mode: 'any', tools: [] } }, 'tool_choice.mode', 'invalid_value'],
  [{ input: [{ type: 'function_call_output', call_id: 'call_1', output: 'x' }] }, 'input[0].call_id', 'invalid_value'],
  [{ input: [{ type: 'function_call', call_id: 'call_1', name: 'look' }] }, 'input[0].arguments', 'missing_required_parameter'],
  [{ input: [{ type: 'item_reference', id: 'msg_1' }] }, 'input[0].type', 'invalid_value'],
  [{ input: [{ type: 'reasoning', summary: [] }] }, 'input', 'invalid_value'],
  [{ previous_response_id: 7 }, 'previous_response_id', 'invalid_value'],
  [{ text: { format: { type: 'grammar' } } }, 'text.format.type', 'invalid_value'],
  [{ text: { format: { type: 'json_schema', name: 'a' } } }, 'text.format.schema', 'missing_required_parameter'],
  [{ text: { format: { type: 'json_schema', name: 'a b', schema: {} } } }, 'text.format.name', 'invalid_value'],
  [{ truncation: 'auto' }, 'truncation', 'unsupported_parameter'],
  [{ background: true, store: false }, 'store', 'invalid_value'],
])('%j is refused', async (more, param, code) => {
  await expect(openai.responses.create({ ...ask('x'), ...more } as Create)).rejects.toMatchObject({ status: 400, param, code });
});

test.each<[string, string]>([
  ['starting_after=1', 'starting_after'],
  ['stream=true&starting_after=-1', 'starting_after'],
  ['stream=perhaps', 'stream'],
])('asked for with ?%s', async (query, param) => {
  const { id } = await openai.responses.create(ask('x'));
  const reply = await fetch(`${stack.gateway.url}/v1/responses/${id}?${query}`, {
    headers: { authorization: `Bearer ${stack.gateway.key}` },
  });
  expect([reply.status, ((await reply.json()) as { error: { param: string } }).error.param]).toEqual([400, param]);
});
