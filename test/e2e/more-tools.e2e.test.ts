/** Tools of the calls besides chat completions, of the whole product with the real model and the official clients. */
import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Product } from './product.ts';
import { expectFit, QUESTION, SUM, WEATHER } from './weather-tools.ts';

let product: Product;
beforeAll(async () => {
  product = await Product.start();
});
afterAll(() => product.stop());

describe('@anthropic-ai/sdk', () => {
  let client: Anthropic;
  beforeAll(() => {
    client = new Anthropic({ baseURL: product.baseUrl.replace(/\/v1$/, ''), apiKey: product.key, authToken: null, maxRetries: 0 });
  });
  const tools: Anthropic.Tool[] = [
    { name: 'get_weather', description: 'Get the weather in a city', input_schema: WEATHER as Anthropic.Tool.InputSchema },
    { name: 'add_numbers', description: 'Add two numbers', input_schema: SUM as Anthropic.Tool.InputSchema },
  ];
  const prompt = { model: 'default', tools, messages: [{ role: 'user' as const, content: QUESTION }] };
  const asked = { ...prompt, temperature: 0, max_tokens: 300 };
  const named = { type: 'tool' as const, name: 'get_weather' };
  const usesOf = (message: Anthropic.Message) => message.content.filter(block => block.type === 'tool_use');

  it.each<Anthropic.ToolChoice>([named, { type: 'any' }])('%j: a stream gathers to the whole message', async tool_choice => {
    const message = await client.messages.create({ ...asked, tool_choice });
    expect(message.stop_reason).toBe('tool_use');
    const uses = usesOf(message);
    expect(uses).toHaveLength(message.content.length);
    expectFit(uses.map(({ name, input }) => ({ name, arguments: JSON.stringify(input) })));
    for (const use of uses) expect(use).toMatchObject({ id: expect.stringMatching(/^toolu_\w+$/), caller: { type: 'direct' } });
    const streamed = await client.messages.stream({ ...asked, tool_choice, top_k: 1 }).finalMessage();
    expect(streamed.stop_reason).toBe('tool_use');
    expect(usesOf(streamed).map(({ name, input }) => [name, input])).toEqual(uses.map(({ name, input }) => [name, input]));
  });

  it('one call where only one may be; a call that the length cuts has what was whole of it', async () => {
    const one = await client.messages.create({ ...asked, tool_choice: { type: 'any', disable_parallel_tool_use: true } });
    expect(one.content).toHaveLength(1);
    const cut = await client.messages.create({ ...asked, tool_choice: named, max_tokens: 20 });
    expect([cut.stop_reason, usesOf(cut).map(({ name }) => name)]).toEqual(['max_tokens', ['get_weather']]);
    expect(Object.keys(usesOf(cut)[0]!.input as object)).not.toContain('unit');
  });

  it('none: text; the prompt is counted with the tools that it has', async () => {
    const none = await client.messages.create({ ...asked, tool_choice: { type: 'none' }, max_tokens: 12 });
    expect(none.content.map(({ type }) => type)).toEqual(['text']);
    for (const tool_choice of [{ type: 'none' as const }, named]) {
      const { usage } = await client.messages.create({ ...asked, tool_choice, max_tokens: 1 });
      const { input_tokens } = await client.messages.countTokens({ ...prompt, tool_choice });
      expect(input_tokens).toBe(usage.input_tokens + (usage.cache_read_input_tokens ?? 0));
    }
  });

  it('its own runner calls the tool and comes back with the result', async () => {
    const cities: string[] = [];
    const get_weather = betaTool({
      ...{ name: 'get_weather', description: 'Get the weather in a city' },
      inputSchema: WEATHER as never,
      run: async ({ city }: { city: string }) => {
        cities.push(city);
        return 'It is 18 degrees.';
      },
    });
    for (const stream of [false, true]) {
      cities.length = 0;
      const runner = client.beta.messages.toolRunner({
        ...{ model: 'default', max_tokens: 100, temperature: 0, tool_choice: named, messages: prompt.messages, stream },
        ...{ tools: [get_weather], max_iterations: 2 },
      });
      const message = await runner.runUntilDone();
      expect(cities.length).toBeGreaterThan(0);
      expect(cities[0]).not.toBe('');
      expect(message.stop_reason).toBe('tool_use');
      expect(runner.params.messages.map(({ role }) => role).slice(0, 3)).toEqual(['user', 'assistant', 'user']);
    }
  });

  it('what cannot be held to is refused before the first byte, by the place of its tool', async () => {
    const bad: Anthropic.Tool = { name: 'f', input_schema: { type: 'object', properties: { a: { not: {} } } } };
    for (const stream of [false, true]) {
      await expect(
        client.messages.create({ ...asked, stream, tools: [...tools, bad], tool_choice: { type: 'any' } }),
      ).rejects.toMatchObject({
        ...{ status: 400, type: 'invalid_request_error', details: { error_code: 'invalid_value', param: 'tools[2].input_schema' } },
        message: expect.stringContaining("at #/properties/a/not: 'not' is not supported"),
      });
    }
  });
});

describe('openai (npm), responses', () => {
  let client: OpenAI;
  beforeAll(() => {
    client = new OpenAI({ baseURL: product.baseUrl, apiKey: product.key, maxRetries: 0 });
  });
  const tool = (name: string, description: string, parameters: object): OpenAI.Responses.FunctionTool => ({
    ...{ type: 'function', name, description, strict: true },
    parameters: { ...parameters },
  });
  const tools = [tool('get_weather', 'Get the weather in a city', WEATHER), tool('add_numbers', 'Add two numbers', SUM)];
  const asked = { model: 'default', temperature: 0, max_output_tokens: 300, tools, input: QUESTION };
  const named = { type: 'function' as const, name: 'get_weather' };
  type Call = OpenAI.Responses.ResponseFunctionToolCall;
  const callsOf = (response: OpenAI.Responses.Response) => response.output.filter((item): item is Call => item.type === 'function_call');
  const bare = (calls: Call[]) => calls.map(({ name, arguments: json }) => [name, json]);

  it.each([named, 'required'] as const)('%j: a stream gathers to the whole response', async tool_choice => {
    const response = await client.responses.create({ ...asked, tool_choice });
    expect(response).toMatchObject({ status: 'completed', tool_choice, tools });
    const calls = callsOf(response);
    expect(calls).toHaveLength(response.output.length);
    expectFit(calls);
    const streamed = client.responses.stream({ ...asked, tool_choice });
    const pieces = new Map<string, string>();
    streamed.on('response.function_call_arguments.delta', ({ item_id, delta }) => pieces.set(item_id, (pieces.get(item_id) ?? '') + delta));
    const gathered = callsOf(await streamed.finalResponse());
    expect(bare(gathered)).toEqual(bare(calls));
    expect([...pieces.values()]).toEqual(gathered.map(call => call.arguments));
    expect([...pieces.keys()]).toEqual(gathered.map(call => call.id));
  });

  it('the output of a call, by the earlier response or with all of the conversation, reaches the same prompt', async () => {
    const first = await client.responses.create({ ...asked, tool_choice: named });
    const [call] = callsOf(first);
    const output = { type: 'function_call_output' as const, call_id: call!.call_id, output: 'It is 18 degrees and raining in Paris.' };
    const more = { model: 'default', temperature: 0, max_output_tokens: 60, tools, tool_choice: 'none' as const };
    const next = await client.responses.create({ ...more, input: [output], previous_response_id: first.id });
    expect(next.output_text).toMatch(/18|rain/);
    const conversation = [{ role: 'user' as const, content: QUESTION }, ...(first.output as Call[]), output];
    const whole = await client.responses.create({ ...more, input: conversation });
    expect([whole.output_text, whole.usage!.input_tokens]).toEqual([next.output_text, next.usage!.input_tokens]);
  });

  it('in the background, asked for again from any event on; cut off by its length', async () => {
    const { id } = await client.responses.create({ ...asked, tool_choice: named, max_output_tokens: 20, background: true });
    const events: OpenAI.Responses.ResponseStreamEvent[] = [];
    for await (const event of await client.responses.retrieve(id, { stream: true })) events.push(event);
    expect(events.at(-1)).toMatchObject({
      ...{ type: 'response.incomplete' },
      response: { incomplete_details: { reason: 'max_output_tokens' }, output: [{ type: 'function_call', status: 'incomplete' }] },
    });
    const after = events.findIndex(({ type }) => type === 'response.function_call_arguments.delta');
    const rest: typeof events = [];
    for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: after })) rest.push(event);
    expect(rest).toEqual(events.slice(after + 1));
  });

  it('what cannot be held to, and what is no function, is refused by its place', async () => {
    const bad = tool('f', '', { type: 'object', properties: { a: { not: {} } } });
    await expect(client.responses.create({ ...asked, tools: [...tools, bad] })).rejects.toMatchObject({
      ...{ status: 400, code: 'invalid_value', param: 'tools[2].parameters' },
      message: expect.stringContaining("at #/properties/a/not: 'not' is not supported"),
    });
    await expect(client.responses.create({ ...asked, tools: [{ type: 'web_search' }] })).rejects.toMatchObject({
      ...{ status: 400, code: 'unsupported_parameter', param: 'tools[0].type' },
    });
  });
});
