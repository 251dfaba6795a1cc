/** Structured answers of the whole product with the real model: by schema, expression, choice and grammar, streamed and whole. */
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { faultOf, loadSchemas, runSchemas } from '../../bench/structured/schema-run.ts';
import { Product, textOf, user } from './product.ts';

let product: Product;
let client: OpenAI;
beforeAll(async () => {
  product = await Product.start();
  client = new OpenAI({ baseURL: product.baseUrl, apiKey: product.key, maxRetries: 0 });
});
afterAll(() => product.stop());

const PERSON = {
  type: 'object',
  properties: {
    name: { type: 'string', pattern: '^[A-Z][a-z]{2,8}$' },
    age: { type: 'integer', minimum: 0, maximum: 120 },
    tags: { type: 'array', items: { enum: ['tall', 'kind', 'old'] }, maxItems: 3 },
  },
  required: ['name', 'age', 'tags'],
  additionalProperties: false,
};
const format = (schema: object) => ({ type: 'json_schema' as const, json_schema: { name: 'answer', strict: true, schema: { ...schema } } });
const asked = {
  model: 'default',
  messages: [{ role: 'user' as const, content: 'Describe a person in JSON.' }],
  max_tokens: 200,
  temperature: 1,
  seed: 4,
};

describe('a hundred schemas', () => {
  it('each gives an answer that ajv accepts, or a 400 that names the place', async () => {
    const cases = await loadSchemas();
    expect(cases).toHaveLength(100);
    const outcomes = await runSchemas({ baseUrl: product.baseUrl, apiKey: product.key }, { cases, seeds: [1], concurrency: 32 });
    expect(outcomes.filter(({ fault }) => fault !== undefined).map(({ name, fault }) => `${name}: ${fault}`)).toEqual([]);
  });
});

describe('with the openai client', () => {
  it('a streamed answer is the whole one, and both are of the schema', async () => {
    const whole = await client.chat.completions.create({ ...asked, response_format: format(PERSON) });
    const content = whole.choices[0]!.message.content!;
    expect(faultOf(PERSON, content)).toBeUndefined();
    expect(whole.choices[0]!.finish_reason).toBe('stop');
    let streamed = '';
    for await (const chunk of await client.chat.completions.create({ ...asked, response_format: format(PERSON), stream: true })) {
      streamed += chunk.choices[0]?.delta.content ?? '';
    }
    expect(streamed).toBe(content);
  });

  it('of /v1/responses, streamed and whole, parsed by the client', async () => {
    const { messages, max_tokens, ...rest } = asked;
    const body = { ...rest, input: messages[0]!.content, max_output_tokens: max_tokens };
    const text = { format: { type: 'json_schema' as const, name: 'answer', strict: true, schema: PERSON } };
    const parsed = await client.responses.parse({ ...body, text });
    expect(faultOf(PERSON, JSON.stringify(parsed.output_parsed))).toBeUndefined();
    const streamed = await client.responses.stream({ ...body, text }).finalResponse();
    expect(streamed.output_text).toBe(parsed.output_text);
    const refused = { format: { ...text.format, schema: { not: {} } } };
    await expect(client.responses.create({ ...body, text: refused })).rejects.toMatchObject({ status: 400, param: 'text.format' });
  });

  it('several choices with log-probabilities are each of the schema', async () => {
    const reply = await client.chat.completions.create({
      ...asked,
      n: 3,
      logprobs: true,
      top_logprobs: 2,
      response_format: format(PERSON),
    });
    expect(reply.choices).toHaveLength(3);
    for (const { message, logprobs } of reply.choices) {
      expect(faultOf(PERSON, message.content!)).toBeUndefined();
      expect(logprobs!.content!.map(entry => entry.token).join('')).toBe(message.content);
    }
  });

  it('any object', async () => {
    const messages = [{ role: 'user' as const, content: 'Reply with {"city": "Paris"} and nothing else.' }];
    const reply = await client.chat.completions.create({
      ...asked,
      messages,
      temperature: 0,
      max_tokens: 400,
      response_format: { type: 'json_object' },
    });
    expect(reply.choices[0]!.finish_reason).toBe('stop');
    expect(JSON.parse(reply.choices[0]!.message.content!)).toBeTypeOf('object');
  });

  it('a schema that cannot be held to is refused before the stream begins, by its place', async () => {
    const schema = { type: 'object', properties: { a: { type: 'array', items: { not: { type: 'null' } } } } };
    for (const stream of [false, true]) {
      await expect(client.chat.completions.create({ ...asked, stream, response_format: format(schema) })).rejects.toMatchObject({
        status: 400,
        code: 'invalid_value',
        param: 'response_format',
        message: expect.stringContaining("at #/properties/a/items/not: 'not' is not supported"),
      });
    }
  });
});

describe('the extensions', () => {
  const messages = [user('Is the sky blue?')];

  it('an expression, a choice, a grammar, a schema', async () => {
    const regex = '(?:yes|no), since [a-z ]{5,30}\\.';
    expect(textOf(await product.chat({ messages, max_tokens: 40, guided_regex: regex }))).toMatch(new RegExp(`^${regex}$`));
    expect(['maybe', 'certainly not', '☂']).toContain(
      textOf(await product.chat({ messages, guided_choice: ['maybe', 'certainly not', '☂'] })),
    );
    const grammar = 'root ::= sum "\\n"\nsum ::= [0-9]{1,4} (" + " [0-9]{1,4}){1,3}';
    expect(textOf(await product.chat({ messages, temperature: 1, seed: 2, max_tokens: 400, guided_grammar: grammar }))).toMatch(
      /^\d{1,4}(?: \+ \d{1,4}){1,3}\n$/,
    );
    expect(JSON.parse(textOf(await product.chat({ messages, guided_json: { type: 'boolean' } })))).toBeTypeOf('boolean');
  });

  it('of a plain completion, cut by a stop string', async () => {
    const body = { model: 'default', prompt: 'Count:', max_tokens: 60, temperature: 0, guided_regex: 'one two three four', stop: [' th'] };
    const reply = (await (await product.post('/completions', body)).json()) as { choices: { text: string; finish_reason: string }[] };
    expect(reply.choices[0]).toMatchObject({ text: 'one two', finish_reason: 'stop' });
  });

  it('what would take without measure is a 400, and others are answered meanwhile', async () => {
    const deep = (depth: number): object => (depth === 0 ? {} : { anyOf: Array.from({ length: 3 }, () => deep(depth - 1)) });
    const bombs = [
      { guided_regex: '(a{90}){90}' },
      { guided_regex: `${'(a?)'.repeat(40)}${'(b|bb)*'.repeat(300)}` },
      { guided_json: { type: 'string', maxLength: 16_000, pattern: '^(?:a|b)*a(?:a|b){14}$' } },
      { guided_json: { allOf: [{ anyOf: [deep(4), deep(4)] }, { anyOf: [deep(4), deep(3)] }, { anyOf: [deep(3), deep(3)] }] } },
      {
        guided_grammar: ['root ::= r0', ...Array.from({ length: 60 }, (_, i) => `r${i} ::= r${i + 1} r${i + 1}?`), 'r60 ::= "x"'].join(
          '\n',
        ),
      },
    ];
    const plain = product.chat({ messages });
    const replies = await Promise.all(
      bombs.map(bomb => product.post('/chat/completions', { model: 'default', messages, max_tokens: 4, ...bomb })),
    );
    expect(replies.map(reply => reply.status)).toEqual(bombs.map(() => 400));
    expect(textOf(await plain)).not.toBe('');
    for (const reply of replies) expect(await reply.json()).toMatchObject({ error: { code: 'invalid_value' } });
  });
});
