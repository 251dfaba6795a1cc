/** Clients of OpenAI's API, unchanged but for base URL and key, against the whole product; their refusals and retries are in test/gateway/chat-clients.e2e.test.ts. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { generationKey } from '../../shared/keys.ts';
import { CHAT_CLIENTS } from '../gateway/chat-clients.ts';
import { Product } from './product.ts';
import { pythonPath, runPython } from './python-packages.ts';

let product: Product;
let client: OpenAI;

beforeAll(async () => {
  product = await Product.start({ bindings: { SLUICE_KEY_SECRET: 'a secret of some length for keys of tests'.replaceAll(' ', '-') } });
  client = new OpenAI({ baseURL: product.baseUrl, apiKey: product.key, maxRetries: 0 });
});
afterAll(() => product.stop());

const QUESTION = 'What is the capital of France? Answer in one sentence.';
const CAPITAL = [{ role: 'user' as const, content: QUESTION }];
const ANSWER = 'The capital of France is Paris.';

describe.each(Object.entries(CHAT_CLIENTS))('%s', (_name, makeClient) => {
  const chat = () => makeClient({ baseUrl: product.baseUrl, key: product.key, maxRetries: 0 });

  it('gets a whole reply, and streams the same', async () => {
    expect(await chat().whole({ content: QUESTION })).toEqual({ text: ANSWER, completionTokens: 7 });
    const pieces: string[] = [];
    for await (const piece of chat().stream({ content: QUESTION })) pieces.push(piece);
    expect(pieces.join('')).toBe(ANSWER);
    expect(pieces.length).toBeGreaterThan(3);
  });

  it('aborts a stream, and the row is free again', async () => {
    const before = await cancelledCount();
    const abort = new AbortController();
    const long = { content: 'Write a very long story.', temperature: 1, signal: abort.signal };
    try {
      for await (const _piece of chat().stream(long)) abort.abort();
    } catch {
      // Some libraries end quietly, some throw.
    }
    await product.idle();
    // Not because the answer had come to its own end.
    expect(await cancelledCount()).toBe(before + 1);
  });
});

describe('@anthropic-ai/sdk', () => {
  let anthropic: Anthropic;
  beforeAll(() => {
    anthropic = new Anthropic({ baseURL: product.baseUrl.replace(/\/v1$/, ''), apiKey: product.key, authToken: null, maxRetries: 0 });
  });
  const ask = { model: 'default', max_tokens: 50, temperature: 0, messages: CAPITAL };
  const whole = (message: Anthropic.Message) => message.content.map(block => (block.type === 'text' ? block.text : '')).join('');

  it('gets a whole message, streams the same, and counts its prompt', async () => {
    const message = await anthropic.messages.create(ask);
    expect([whole(message), message.stop_reason, message.usage.output_tokens]).toEqual([ANSWER, 'end_turn', 7]);
    const streamed = await anthropic.messages.stream({ ...ask, temperature: 0.01, top_k: 1 }).finalMessage();
    expect([whole(streamed), streamed.stop_reason]).toEqual([ANSWER, 'end_turn']);
    const { input_tokens, cache_read_input_tokens } = streamed.usage;
    // The prompt was there a moment ago.
    expect(cache_read_input_tokens).toBeGreaterThan(0);
    const { input_tokens: counted } = await anthropic.messages.countTokens({ model: 'default', messages: CAPITAL });
    expect([counted, input_tokens + (cache_read_input_tokens ?? 0)]).toEqual([42, 42]);
  });

  it('is told which stop sequence ended it, whether it was streamed or not', async () => {
    const stopped = { ...ask, stop_sequences: ['London', ' is Paris'] };
    for (const message of [await anthropic.messages.create(stopped), await anthropic.messages.stream(stopped).finalMessage()]) {
      expect([whole(message), message.stop_reason, message.stop_sequence]).toEqual(['The capital of France', 'stop_sequence', ' is Paris']);
    }
  });

  it('gets an answer of a schema', async () => {
    const schema = {
      type: 'object',
      properties: { city: { type: 'string', maxLength: 20 } },
      required: ['city'],
      additionalProperties: false,
    };
    const message = await anthropic.messages.create({ ...ask, output_config: { format: { type: 'json_schema', schema } } });
    expect(JSON.parse(whole(message))).toEqual({ city: expect.any(String) });
  });

  it('leaves a stream, and the row is free again; gets typed errors', async () => {
    const before = await cancelledCount();
    const stream = anthropic.messages.stream({
      ...ask,
      max_tokens: 4_000,
      messages: [{ role: 'user', content: 'Write a very long story.' }],
    });
    stream.on('text', () => stream.abort());
    await expect(stream.finalMessage()).rejects.toThrow(Anthropic.APIUserAbortError);
    await product.idle();
    expect(await cancelledCount()).toBe(before + 1);
    const long = [{ role: 'user' as const, content: 'word '.repeat(9_000) }];
    for (const streamed of [false, true]) {
      await expect(anthropic.messages.create({ ...ask, messages: long, stream: streamed })).rejects.toMatchObject({
        status: 400,
        type: 'invalid_request_error',
        errorCode: 'context_length_exceeded',
      });
    }
    await expect(anthropic.messages.create({ ...ask, model: 'claude-none' })).rejects.toThrow(Anthropic.NotFoundError);
  });
});

/** Answers whose record ends with their cancelling. */
async function cancelledCount(): Promise<number> {
  const records = await product.redis.keys(generationKey('*'));
  const ends = await Promise.all(records.map(key => product.redis.xrevrange(key, '+', '-', 'COUNT', 1)));
  return ends.filter(end => JSON.stringify(end).includes('request_cancelled')).length;
}

describe('openai (npm)', () => {
  it('reads every field of a reply', async () => {
    const reply = await client.chat.completions.create({ model: 'default', messages: CAPITAL, temperature: 0 });
    expect(reply.choices[0]).toMatchObject({ message: { role: 'assistant', content: ANSWER }, finish_reason: 'stop' });
    expect(reply.model).toBe('smollm2-135m-instruct');
    expect(reply.usage).toMatchObject({ prompt_tokens: 42, completion_tokens: 7, total_tokens: 49 });
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
import json, sys, threading, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
ask = dict(model='default', temperature=0, messages=[{'role': 'user', 'content': 'What is the capital of France? Answer in one sentence.'}])
whole = client.chat.completions.create(**ask)
chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={'include_usage': True}))
narrow = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[3], max_retries=0)
def hog():
    return narrow.chat.completions.create(**{**ask, 'temperature': 1}, stream=True, max_tokens=4000, extra_body={'ignore_eos': True})
def code(call):
    try:
        call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code]
# One request at a time is all that this key may have: the second is refused, and is let in when the first has been left.
with hog() as stream:
    first = next(iter(stream))
    busy = code(lambda: narrow.chat.completions.create(**ask))
    threading.Timer(0.5, stream.close).start()
    retried = narrow.with_options(max_retries=9).chat.completions.create(**ask)
asked = dict(model='default', temperature=0, input='What is the capital of France? Answer in one sentence.')
response = client.responses.create(**asked, background=True)
events = list(client.responses.retrieve(response.id, stream=True))
later = list(client.responses.retrieve(response.id, stream=True, starting_after=events[-3].sequence_number))
print(json.dumps({
    'response': [response.status, events[0].type, events[-1].response.output_text, later == events[-2:]],
    'busy': busy,
    'retried': retried.choices[0].message.content,
    'stranger': code(lambda: openai.OpenAI(base_url=sys.argv[1], api_key='sk-wrong', max_retries=0).models.list()),
    'whole': whole.choices[0].message.content,
    'finish': whole.choices[0].finish_reason,
    'streamed': ''.join(c.choices[0].delta.content or '' for c in chunks if c.choices),
    'usage': chunks[-1].usage.completion_tokens,
    'models': [m.id for m in client.models.list()],
    'unknown': code(lambda: client.chat.completions.create(**{**ask, 'model': 'none'})),
    'long': code(lambda: client.chat.completions.create(**{**ask, 'messages': [{'role': 'user', 'content': 'word ' * 9000}]}, stream=True)),
}))`;

  it('gets whole replies, streams, models and typed errors; leaves a stream; tries again', async () => {
    const path = await pythonPath('openai==3.57.0');
    const made = await fetch(product.baseUrl.replace(/v1$/, 'admin/keys'), {
      method: 'POST',
      headers: { authorization: `Bearer ${product.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ tenant: 'python', limits: { concurrent_requests: 1 } }),
    });
    const { key } = (await made.json()) as { key: string };
    const result = JSON.parse(await runPython(PROGRAM, { path, args: [product.baseUrl, product.key, key] }));
    expect(result).toEqual({
      response: ['queued', 'response.created', ANSWER, true],
      busy: ['RateLimitError', 429, 'rate_limit_exceeded'],
      retried: ANSWER,
      stranger: ['AuthenticationError', 401, 'invalid_api_key'],
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
