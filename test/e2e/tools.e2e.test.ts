/** Tools of the whole product with the real model and the official clients: named and required calls, whole and streamed, and a result on its way back. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPart } from '../gateway/resumer.ts';
import { eventually } from '../gateway/stack.ts';
import { Product } from './product.ts';
import { pythonPath, runPython } from './python-packages.ts';
import { expectFit, QUESTION, SUM, WEATHER } from './weather-tools.ts';

let product: Product;
let client: OpenAI;
beforeAll(async () => {
  product = await Product.start({ bindings: { SLUICE_CACHE_TTL_MS: '60000' } });
  client = new OpenAI({ baseURL: product.baseUrl, apiKey: product.key, maxRetries: 0 });
});
afterAll(() => product.stop());

const tools = [
  { type: 'function' as const, function: { name: 'get_weather', description: 'Get the weather in a city', parameters: { ...WEATHER } } },
  { type: 'function' as const, function: { name: 'add_numbers', description: 'Add two numbers', parameters: { ...SUM } } },
];
const asked = { model: 'default', temperature: 0, max_tokens: 300, tools, messages: [{ role: 'user' as const, content: QUESTION }] };
const named = { type: 'function' as const, function: { name: 'get_weather' } };

type Call = OpenAI.Chat.Completions.ChatCompletionMessageFunctionToolCall;
const callsOf = (message: OpenAI.Chat.Completions.ChatCompletionMessage): Call[] => (message.tool_calls ?? []) as Call[];

describe('openai (npm)', () => {
  it.each([named, 'required'] as const)('%j: a stream gathers to the whole reply', async tool_choice => {
    const whole = await client.chat.completions.create({ ...asked, tool_choice });
    const { message, finish_reason } = whole.choices[0]!;
    // As with OpenAI.
    const reason = tool_choice === 'required' ? 'tool_calls' : 'stop';
    expect(finish_reason).toBe(reason);
    expect(message.content).toBeNull();
    expectFit(callsOf(message).map(call => call.function));
    const gathered = await client.chat.completions.stream({ ...asked, tool_choice }).finalChatCompletion();
    expect(gathered.choices[0]!.finish_reason).toBe(reason);
    const bare = (calls: Call[]) => calls.map(call => [call.type, call.function.name, call.function.arguments]);
    expect(bare(callsOf(gathered.choices[0]!.message))).toEqual(bare(callsOf(message)));
  });

  it('case 5: calls of a stream have indexes of their own, id and name once each, and arguments that parse', async () => {
    const seen = new Map<number, { ids: string[]; names: string[]; json: string }>();
    const reasons: string[] = [];
    for await (const { choices } of await client.chat.completions.create({ ...asked, tool_choice: 'required', stream: true })) {
      for (const { delta, finish_reason } of choices) {
        if (finish_reason !== null) reasons.push(finish_reason);
        for (const call of delta.tool_calls ?? []) {
          const one = seen.get(call.index) ?? { ids: [], names: [], json: '' };
          seen.set(call.index, one);
          if (call.id !== undefined) {
            one.ids.push(call.id);
            expect(call).toMatchObject({ type: 'function', function: { arguments: '' } });
          }
          if (call.function?.name !== undefined) one.names.push(call.function.name);
          one.json += call.function?.arguments ?? '';
        }
      }
    }
    expect(reasons).toEqual(['tool_calls']);
    expect(seen.size).toBeGreaterThan(1);
    expect([...seen.keys()]).toEqual([...seen.keys()].map((_, index) => index));
    expect(new Set([...seen.values()].flatMap(one => one.ids)).size).toBe(seen.size);
    for (const { ids, names, json } of seen.values()) {
      expect([ids.length, names.length]).toEqual([1, 1]);
      expectFit([{ name: names[0]!, arguments: json }]);
    }
  });

  it('several choices, warm and with log-probabilities, each call what they must; one where only one may be', async () => {
    const { choices } = await client.chat.completions.create({
      ...asked,
      ...{ temperature: 1, seed: 3, n: 3, logprobs: true, tool_choice: 'required', parallel_tool_calls: false },
      // Of no account within a call.
      stop: ['"', '}'],
    });
    expect(choices).toHaveLength(3);
    for (const { message, logprobs } of choices) {
      expect(callsOf(message)).toHaveLength(1);
      expectFit(callsOf(message).map(call => call.function));
      expect(logprobs!.content!.map(entry => entry.token).join('')).toContain('"arguments": ');
    }
    expect(new Set(choices.flatMap(choice => callsOf(choice.message).map(call => call.id))).size).toBe(3);
  });

  it('a call that the length cuts is a beginning', async () => {
    const { choices } = await client.chat.completions.create({ ...asked, tool_choice: named, max_tokens: 24 });
    expect(choices[0]!.finish_reason).toBe('length');
    const [call] = callsOf(choices[0]!.message);
    expect(call!.function.name).toBe('get_weather');
    expect(() => JSON.parse(call!.function.arguments)).toThrow();
  });

  it('none: text, and a shorter prompt; auto: the tools are in the prompt', async () => {
    const [none, auto] = await Promise.all(
      (['none', 'auto'] as const).map(tool_choice => client.chat.completions.create({ ...asked, tool_choice, max_tokens: 12 })),
    );
    expect(none!.choices[0]!.message.tool_calls).toBeUndefined();
    expect(none!.usage!.prompt_tokens).toBeLessThan(auto!.usage!.prompt_tokens - 100);
  });

  it('what cannot be held to is refused before the stream begins, by the place of its function', async () => {
    const bad = { type: 'function' as const, function: { name: 'f', parameters: { type: 'object', properties: { a: { not: {} } } } } };
    for (const stream of [false, true]) {
      await expect(
        client.chat.completions.create({ ...asked, stream, tools: [...tools, bad], tool_choice: 'required' }),
      ).rejects.toMatchObject({
        ...{ status: 400, code: 'invalid_value', param: 'tools[2].function.parameters' },
        message: expect.stringContaining("at #/properties/a/not: 'not' is not supported"),
      });
    }
  });

  it('case 29: a call with content null and its result reach the prompt', async () => {
    const call = {
      id: 'call_1',
      type: 'function' as const,
      function: { name: 'get_weather', arguments: '{"city":"Paris","unit":"celsius"}' },
    };
    const messages = [
      ...asked.messages,
      { role: 'assistant' as const, content: null, tool_calls: [call] },
      { role: 'tool' as const, tool_call_id: 'call_1', content: 'It is 18 degrees and raining in Paris.' },
    ];
    const { choices } = await client.chat.completions.create({ ...asked, messages, tool_choice: 'none', max_tokens: 60 });
    expect(choices[0]!.message.content).toMatch(/18|rain/);
  });

  it('a cached reply has the same calls under ids of its own', async () => {
    const body = { ...asked, tool_choice: named, user: 'cache' };
    const first = await client.chat.completions.create(body).withResponse();
    let again = first;
    // It is kept a moment after it was told.
    await eventually('the answer to be kept', async () => {
      again = await client.chat.completions.create(body).withResponse();
      return again.response.headers.get('x-sluice-cache') === 'hit';
    });
    const [a, b] = [first, again].map(({ data }) => callsOf(data.choices[0]!.message)[0]!);
    expect(a!.function).toEqual(b!.function);
    expect(a!.id).not.toBe(b!.id);
  });
});

describe('a stream of calls', () => {
  it('left after each of its events and taken up again is the same to the byte', async () => {
    const response = await product.post('/chat/completions', { ...asked, tool_choice: named, stream: true, seed: 9 });
    const { id, stream } = await readPart(response);
    const ids = [...new Set(stream.events.flatMap(event => event.id ?? []))];
    expect(ids.length).toBeGreaterThan(10);
    for (const lastId of ids.slice(0, -1)) {
      const headers = { authorization: `Bearer ${product.key}`, 'last-event-id': lastId };
      const rest = await readPart(await fetch(`${product.baseUrl}/streams/${id}`, { headers }));
      expect(rest.stream.events).toEqual(stream.events.slice(1 + stream.events.findLastIndex(event => event.id === lastId)));
    }
  });
});

describe('openai (PyPI)', () => {
  const PROGRAM = `
import json, sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
ask = json.loads(sys.argv[3])
whole = client.chat.completions.create(**ask).choices[0]
with client.chat.completions.stream(**ask) as stream:
    kinds = {event.type for event in stream}
    gathered = stream.get_final_completion().choices[0]
call = whole.message.tool_calls[0]
messages = ask['messages'] + [whole.message.model_dump(exclude_none=True)]
for one in whole.message.tool_calls:
    messages.append({'role': 'tool', 'tool_call_id': one.id, 'content': 'It is 18 degrees.'})
after = client.chat.completions.create(**{**ask, 'messages': messages, 'tool_choice': 'none', 'max_tokens': 40}).choices[0]
calls = lambda choice: [[c.type, c.function.name, c.function.arguments] for c in choice.message.tool_calls]
print(json.dumps({
    'finish': [whole.finish_reason, gathered.finish_reason],
    'same': calls(whole) == calls(gathered),
    'names': sorted({c.function.name for c in whole.message.tool_calls}),
    'done': 'tool_calls.function.arguments.done' in kinds,
    'after': bool(after.message.content),
}))`;

  it('calls whole and streamed are the same, and take their results', async () => {
    const path = await pythonPath('openai==3.57.0');
    const args = [product.baseUrl, product.key, JSON.stringify({ ...asked, tool_choice: named })];
    const result = JSON.parse(await runPython(PROGRAM, { path, args }));
    expect(result).toEqual({ finish: ['stop', 'stop'], same: true, names: ['get_weather'], done: true, after: true });
  });
});

describe('AI SDK', () => {
  it('runs a tool and goes on with its result, streamed and whole', async () => {
    const model = createOpenAICompatible({ name: 'sluice', baseURL: product.baseUrl, apiKey: product.key })('default');
    const cities: string[] = [];
    const get_weather = tool({
      description: 'Get the weather in a city',
      inputSchema: jsonSchema<{ city: string; unit: string }>(WEATHER as never),
      execute: async ({ city }) => {
        cities.push(city);
        return { degrees: 18 };
      },
    });
    const common = {
      model,
      tools: { get_weather },
      toolChoice: { type: 'tool' as const, toolName: 'get_weather' as const },
      temperature: 0,
    };
    const whole = await generateText({ ...common, prompt: QUESTION, maxOutputTokens: 200, stopWhen: stepCountIs(2) });
    expect(whole.steps).toHaveLength(2);
    expect(whole.steps[0]!.toolCalls.length).toBeGreaterThan(0);
    expect(whole.steps[0]!.toolResults.map(result => result.output)).toEqual([{ degrees: 18 }]);
    const stream = streamText({ ...common, prompt: QUESTION, maxOutputTokens: 200, stopWhen: stepCountIs(1) });
    const calls = await stream.toolCalls;
    expect(calls.map(call => (call.input as { city: string }).city)).toEqual(
      whole.steps[0]!.toolCalls.map(call => (call.input as { city: string }).city),
    );
    expect(cities.length).toBeGreaterThan(1);
  });
});

describe('LangChain', () => {
  it('binds tools, calls and streams them', async () => {
    const model = new ChatOpenAI({
      ...{ model: 'default', apiKey: product.key, temperature: 0, maxTokens: 200, maxRetries: 0 },
      configuration: { baseURL: product.baseUrl },
    }).bindTools(tools, { tool_choice: named });
    const whole = await model.invoke(QUESTION);
    expect(whole.tool_calls!.map(call => call.name)).toEqual(['get_weather']);
    let gathered: Awaited<ReturnType<typeof model.invoke>> | undefined;
    for await (const chunk of await model.stream(QUESTION)) gathered = gathered === undefined ? chunk : gathered.concat(chunk);
    expect(gathered!.tool_calls!.map(call => call.args)).toEqual(whole.tool_calls!.map(call => call.args));
  });
});
