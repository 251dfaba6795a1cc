/** The official OpenAI clients, unchanged but for base URL and key, against the whole product. */
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Product } from './product.ts';
import { pythonPath, runPython } from './python-packages.ts';

let product: Product;
let client: OpenAI;

beforeAll(async () => {
  product = await Product.start();
  client = new OpenAI({ baseURL: product.baseUrl, apiKey: product.key, maxRetries: 0 });
});
afterAll(() => product.stop());

const CAPITAL = [{ role: 'user' as const, content: 'What is the capital of France? Answer in one sentence.' }];
const ANSWER = 'The capital of France is Paris.';

describe('openai (npm)', () => {
  it('gets a whole reply', async () => {
    const reply = await client.chat.completions.create({ model: 'default', messages: CAPITAL, temperature: 0 });
    expect(reply.choices[0]).toMatchObject({ message: { role: 'assistant', content: ANSWER }, finish_reason: 'stop' });
    expect(reply.model).toBe('smollm2-135m-instruct');
    expect(reply.usage).toMatchObject({ prompt_tokens: 42, completion_tokens: 7, total_tokens: 49 });
  });

  it('streams the same', async () => {
    const stream = await client.chat.completions.create({ model: 'default', messages: CAPITAL, temperature: 0, stream: true });
    let text = '';
    let chunkCount = 0;
    for await (const chunk of stream) {
      text += chunk.choices[0]!.delta.content ?? '';
      chunkCount += 1;
    }
    expect(text).toBe(ANSWER);
    expect(chunkCount).toBeGreaterThan(5);
  });

  it('gathers a stream by its own helper, usage included', async () => {
    const runner = client.chat.completions.stream({
      model: 'default',
      messages: CAPITAL,
      temperature: 0,
      stream_options: { include_usage: true },
    });
    const whole = await runner.finalChatCompletion();
    expect(whole.choices[0]!.message.content).toBe(ANSWER);
    expect((await runner.totalUsage()).completion_tokens).toBe(7);
  });

  it('aborts a stream, and the row is free again', async () => {
    const stream = await client.chat.completions.create({
      model: 'default',
      messages: CAPITAL,
      stream: true,
      max_tokens: 4_000,
      ...{ ignore_eos: true },
    });
    for await (const _chunk of stream) {
      stream.controller.abort();
      break;
    }
    await product.idle();
  });

  it('lists the model, and gets typed errors', async () => {
    const models = await client.models.list();
    expect(models.data.map(model => model.id)).toContain('smollm2-135m-instruct');
    await expect(client.chat.completions.create({ model: 'gpt-none', messages: CAPITAL })).rejects.toThrow(OpenAI.NotFoundError);
    const stranger = new OpenAI({ baseURL: product.baseUrl, apiKey: 'sk-wrong', maxRetries: 0 });
    await expect(stranger.models.list()).rejects.toThrow(OpenAI.AuthenticationError);
    const long = [{ role: 'user' as const, content: 'word '.repeat(9_000) }];
    await expect(client.chat.completions.create({ model: 'default', messages: long })).rejects.toMatchObject({
      status: 400,
      code: 'context_length_exceeded',
    });
    await expect(client.chat.completions.create({ model: 'default', messages: long, stream: true })).rejects.toThrow(
      OpenAI.BadRequestError,
    );
  });
});

describe('openai (PyPI)', () => {
  const PROGRAM = `
import json, sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
ask = dict(model='default', temperature=0, messages=[{'role': 'user', 'content': 'What is the capital of France? Answer in one sentence.'}])
whole = client.chat.completions.create(**ask)
chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={'include_usage': True}))
def code(call):
    try:
        call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code]
print(json.dumps({
    'whole': whole.choices[0].message.content,
    'finish': whole.choices[0].finish_reason,
    'streamed': ''.join(c.choices[0].delta.content or '' for c in chunks if c.choices),
    'usage': chunks[-1].usage.completion_tokens,
    'models': [m.id for m in client.models.list()],
    'unknown': code(lambda: client.chat.completions.create(**{**ask, 'model': 'none'})),
    'long': code(lambda: client.chat.completions.create(**{**ask, 'messages': [{'role': 'user', 'content': 'word ' * 9000}]}, stream=True)),
}))`;

  it('gets whole replies, streams, models and typed errors', async () => {
    const path = await pythonPath('openai==3.57.0');
    const result = JSON.parse(await runPython(PROGRAM, { path, args: [product.baseUrl, product.key] }));
    expect(result).toEqual({
      whole: ANSWER,
      finish: 'stop',
      streamed: ANSWER,
      usage: 7,
      models: ['smollm2-135m-instruct'],
      unknown: ['NotFoundError', 404, 'model_not_found'],
      long: ['BadRequestError', 400, 'context_length_exceeded'],
    });
  });
});
