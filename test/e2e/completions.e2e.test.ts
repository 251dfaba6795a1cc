/** POST /v1/completions on the whole product with the real model: OpenAI's old shapes, and its own client. */
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Product, user } from './product.ts';

interface Logprobs {
  tokens: string[];
  token_logprobs: (number | null)[];
  top_logprobs: (Record<string, number> | null)[];
  text_offset: number[];
}

interface Completion {
  id: string;
  object: string;
  model: string;
  choices: { index: number; text: string; logprobs: Logprobs | null; finish_reason: string }[];
  usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number; prompt_tokens_details: { cached_tokens: number } };
}

let product: Product;
let client: OpenAI;

beforeAll(async () => {
  product = await Product.start();
  client = new OpenAI({ baseURL: product.baseUrl, apiKey: product.key, maxRetries: 0 });
});
afterAll(() => product.stop());

const ALPHABET = 'Here is the English alphabet: ABC';
const post = (body: object) => product.post('/completions', { model: 'default', temperature: 0, ...body });

async function complete(body: object): Promise<Completion> {
  const response = await post(body);
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Completion;
}

async function refusal(body: object): Promise<{ status: number; error: { code: string; param: string | null; message: string } }> {
  const response = await post(body);
  return { status: response.status, ...((await response.json()) as { error: { code: string; param: string | null; message: string } }) };
}

/** The chunks of a stream, and each choice's joined text. */
async function streamed(body: object): Promise<{ chunks: Completion[]; texts: string[] }> {
  const response = await post({ ...body, stream: true });
  expect(response.status).toBe(200);
  const data = (await response.text()).split('\n').flatMap(line => (line.startsWith('data: ') ? [line.slice(6)] : []));
  expect(data.at(-1)).toBe('[DONE]');
  const chunks = data.slice(0, -1).map(json => JSON.parse(json) as Completion);
  const texts: string[] = [];
  for (const { index, text } of chunks.flatMap(chunk => chunk.choices)) texts[index] = (texts[index] ?? '') + text;
  return { chunks, texts };
}

/** Where each token says that it begins is where it is, unless it is only part of a character. */
function checkOffsets({ text, logprobs }: { text: string; logprobs: Logprobs | null }): void {
  const characters = Array.from(text);
  for (const [index, token] of logprobs!.tokens.entries()) {
    if (token.includes('\\x') || token.startsWith('<|')) continue;
    const offset = logprobs!.text_offset[index]!;
    expect(characters.slice(offset, offset + Array.from(token).length).join('')).toBe(token);
  }
}

describe('the old shape', () => {
  it('answers whole, 16 tokens by default', async () => {
    const reply = await complete({ prompt: ALPHABET });
    expect(reply).toMatchObject({
      id: expect.stringMatching(/^cmpl-[0-9a-f]{32}$/),
      object: 'text_completion',
      model: 'smollm2-135m-instruct',
      choices: [{ index: 0, text: expect.any(String), logprobs: null, finish_reason: 'length' }],
      usage: { completion_tokens: 16 },
    });
    expect(reply.usage.total_tokens).toBe(reply.usage.prompt_tokens + 16);
  });

  it('case 59: max_tokens null is the default, as are the other fields', async () => {
    const plain = await complete({ prompt: 'test' });
    const nulls = await complete({
      prompt: 'test',
      ...{ max_tokens: null, n: null, best_of: null, echo: null, logprobs: null, stop: null, suffix: null, stream: null, user: null },
    });
    expect(nulls.usage.completion_tokens).toBe(plain.usage.completion_tokens);
    expect(nulls.choices).toEqual(plain.choices);
  });

  it('case 1: a stream holds back what may become a stop string, and says what the whole reply says', async () => {
    const free = (await complete({ prompt: ALPHABET })).choices[0]!.text;
    expect(free).toContain('DEFGHIJ');
    for (const stop of [['DEFGHIJ'], 'GHI', ['XYZ', 'HIJK']]) {
      const whole = (await complete({ prompt: ALPHABET, stop })).choices[0]!;
      expect(whole).toMatchObject({ text: free.slice(0, free.indexOf(Array.isArray(stop) ? stop.at(-1)! : stop)), finish_reason: 'stop' });
      const { chunks, texts } = await streamed({ prompt: ALPHABET, stop });
      expect(texts).toEqual([whole.text]);
      const reasons = chunks.flatMap(chunk => chunk.choices.map(choice => choice.finish_reason));
      expect(reasons.filter(reason => reason !== null)).toEqual(['stop']);
      expect(reasons.at(-1)).toBe('stop');
    }
  });

  it('streams usage in one last chunk when asked, and not otherwise', async () => {
    const { chunks } = await streamed({ prompt: ALPHABET, stream_options: { include_usage: true } });
    expect(chunks.at(-1)).toMatchObject({ object: 'text_completion', choices: [], usage: { completion_tokens: 16 } });
    for (const chunk of chunks.slice(0, -1)) expect(chunk).toMatchObject({ choices: [{ index: 0 }], usage: null });
    for (const chunk of (await streamed({ prompt: ALPHABET })).chunks) expect(chunk.choices).toHaveLength(1);
  });

  it('case 15, in the old shape: log-probabilities of each token, with the chosen one among the likely', async () => {
    const { choices } = await complete({ prompt: 'The capital of France is', max_tokens: 8, logprobs: 3, temperature: 1.5, seed: 3 });
    const { tokens, token_logprobs, top_logprobs, text_offset } = choices[0]!.logprobs!;
    expect([tokens, token_logprobs, top_logprobs, text_offset].map(list => list.length)).toEqual([8, 8, 8, 8]);
    expect(tokens.join('')).toBe(choices[0]!.text);
    checkOffsets(choices[0]!);
    for (const [index, top] of top_logprobs.entries()) {
      expect(top![tokens[index]!]).toBe(token_logprobs[index]);
      const count = Object.keys(top!).length;
      expect(count === 3 || count === 4).toBe(true);
    }
    const none = (await complete({ prompt: 'The capital of France is', max_tokens: 2, logprobs: 0 })).choices[0]!.logprobs!;
    expect(none.top_logprobs).toEqual(none.tokens.map((token, index) => ({ [token]: none.token_logprobs[index] })));
    const stream = await streamed({ prompt: 'The capital of France is', max_tokens: 8, logprobs: 3, temperature: 1.5, seed: 3 });
    const pieces = stream.chunks.flatMap(chunk => chunk.choices.flatMap(choice => choice.logprobs ?? []));
    expect(pieces.flatMap(piece => piece.tokens)).toEqual(tokens);
    expect(pieces.flatMap(piece => piece.text_offset)).toEqual(text_offset);
  });

  it('case 17: presence and frequency penalties do not see the prompt', async () => {
    const first = async (penalty: object) =>
      (await complete({ prompt: 'Paris Paris Paris Paris', max_tokens: 1, logprobs: 5, ...penalty })).choices[0]!;
    const free = await first({});
    for (const penalty of [{ presence_penalty: 2 }, { frequency_penalty: 2 }]) {
      const { text, logprobs } = await first(penalty);
      expect(text).toBe(free.text);
      expect(logprobs!.token_logprobs[0]).toBeCloseTo(free.logprobs!.token_logprobs[0]!, 4);
    }
  });

  it('case 19: an empty list of stop strings is none, an empty string is refused', async () => {
    const prompt = '<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n';
    const plain = await complete({ prompt, max_tokens: 60 });
    expect(plain.choices[0]!.finish_reason).toBe('stop');
    for (const stop of [[], null]) expect((await complete({ prompt, max_tokens: 60, stop })).choices[0]!.text).toBe(plain.choices[0]!.text);
    for (const stop of ['', ['']]) expect(await refusal({ prompt, stop })).toMatchObject({ status: 400, error: { code: 'invalid_value' } });
  });

  it('case 54: the template written out is the chat, token for token', async () => {
    const prompt =
      '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' +
      '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n';
    const chat = await product.chat({ messages: [user('hi')], logprobs: true, max_tokens: 8 });
    const text = await complete({ prompt, logprobs: 0, max_tokens: 8 });
    expect(text.usage.prompt_tokens).toBe(chat.usage.prompt_tokens);
    expect(text.choices[0]!.text).toBe(chat.choices[0]!.message.content);
    expect(text.choices[0]!.logprobs!.token_logprobs[0]).toBeCloseTo(chat.choices[0]!.logprobs!.content[0]!.logprob, 3);
  });
});

describe('prompts', () => {
  it.each([
    ['[""]', ['']],
    ['""', ''],
    ['null', null],
    ['[]', []],
    ['[[]]', [[]]],
    ['["a",""]', ['a', '']],
  ])('case 27: an empty prompt %s is refused, streamed or not, and the next request is served', async (_name, prompt) => {
    for (const stream of [false, true]) {
      expect(await refusal({ prompt, max_tokens: 20, stream })).toMatchObject({
        status: 400,
        error: { type: 'invalid_request_error', param: expect.stringMatching(/^prompt/) },
      });
    }
    expect((await complete({ prompt: 'a', max_tokens: 1 })).usage.completion_tokens).toBe(1);
  });

  it('gives each of a list its choices, numbered in order, and one usage', async () => {
    const prompts = [ALPHABET, 'One, two, three,', 'The capital of France is'];
    const alone = await Promise.all(prompts.map(prompt => complete({ prompt, n: 2, temperature: 1, seed: 5, max_tokens: 6 })));
    const body = { prompt: prompts, n: 2, temperature: 1, seed: 5, max_tokens: 6 };
    const list = await complete(body);
    expect(list.choices.map(choice => choice.index)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(list.choices.map(choice => choice.text)).toEqual(alone.flatMap(reply => reply.choices.map(choice => choice.text)));
    expect(list.usage.prompt_tokens).toBe(alone.reduce((sum, reply) => sum + reply.usage.prompt_tokens, 0));
    expect(list.usage.completion_tokens).toBe(36);
    const { chunks, texts } = await streamed(body);
    expect(texts).toEqual(list.choices.map(choice => choice.text));
    for (const index of texts.keys()) {
      const reasons = chunks.flatMap(chunk => chunk.choices.filter(choice => choice.index === index).map(choice => choice.finish_reason));
      expect(reasons.filter(reason => reason !== null)).toEqual(['length']);
    }
  });

  it('takes token ids, one prompt or several, and gives what their text gives', async () => {
    // "The capital of France is"
    const tokenIds = [504, 3575, 282, 4649, 314];
    const text = await complete({ prompt: 'The capital of France is' });
    for (const prompt of [tokenIds, [tokenIds]]) {
      const ids = await complete({ prompt, echo: true });
      expect(ids.usage.prompt_tokens).toBe(5);
      expect(ids.choices[0]!.text).toBe(`The capital of France is${text.choices[0]!.text}`);
    }
    const both = await complete({ prompt: [tokenIds, [504, 3575]], max_tokens: 1 });
    expect(both.choices).toHaveLength(2);
    expect(both.usage.prompt_tokens).toBe(7);
  });

  it.each([
    ['suffix', { prompt: 'a', suffix: 'b' }, 'unsupported_parameter', 'suffix'],
    ['a token id that the model has not', { prompt: [1, 49_152] }, 'invalid_value', 'prompt'],
    ['the same in a stream', { prompt: [[1], [49_152]], stream: true }, 'invalid_value', 'prompt'],
    ['token ids mixed with text', { prompt: [1, 'a'] }, 'invalid_value', 'prompt[1]'],
    ['text mixed with token ids', { prompt: ['a', [1]] }, 'invalid_value', 'prompt[1]'],
    ['negative token ids', { prompt: [[1, -1]] }, 'invalid_value', 'prompt[0][1]'],
    ['more prompts than one request may have', { prompt: Array(65).fill('a') }, 'invalid_value', 'prompt'],
    ['more choices than one request may have', { prompt: Array(20).fill('a'), n: 8 }, 'invalid_value', 'prompt'],
    ['no prompt', {}, 'missing_required_parameter', 'prompt'],
    ['a number', { prompt: 7 }, 'invalid_value', 'prompt'],
    ['logprobs as chat has them', { prompt: 'a', logprobs: true }, 'invalid_value', 'logprobs'],
    ['more than 5 logprobs', { prompt: 'a', logprobs: 6 }, 'invalid_value', 'logprobs'],
    ['best_of below n', { prompt: 'a', n: 3, best_of: 2 }, 'invalid_value', 'best_of'],
    ['best_of in a stream', { prompt: 'a', best_of: 2, stream: true }, 'invalid_value', 'best_of'],
    ['max_tokens 0 without echo', { prompt: 'a', max_tokens: 0 }, 'invalid_value', 'max_tokens'],
    ['max_tokens below 0', { prompt: 'a', max_tokens: -1 }, 'invalid_value', 'max_tokens'],
    ['a bias for a token that the model has not', { prompt: 'a', logit_bias: { 999999: 1 } }, 'invalid_value', 'logit_bias'],
    ['the same bias in a stream', { prompt: 'a', logit_bias: { 999999: 1 }, stream: true }, 'invalid_value', 'logit_bias'],
    ['one prompt of a list that is too long', { prompt: ['a', 'word '.repeat(9_000)] }, 'context_length_exceeded', 'prompt'],
    ['the same in a stream', { prompt: ['a', 'word '.repeat(9_000)], stream: true }, 'context_length_exceeded', 'prompt'],
  ])('refuses %s', async (_name, body, code, param) => {
    expect(await refusal(body)).toMatchObject({ status: 400, error: { code, param } });
  });
});

describe('echo', () => {
  // Control tokens, and characters of two and of four bytes.
  const PROMPT = '<|im_start|>user\nDoppelgänger 😀<|im_end|>\n';

  it('is exactly the text that the client sent, before each choice', async () => {
    const bare = await complete({ prompt: [PROMPT, ALPHABET], n: 2, temperature: 1, seed: 1 });
    const reply = await complete({ prompt: [PROMPT, ALPHABET], n: 2, temperature: 1, seed: 1, echo: true });
    const prompts = [PROMPT, PROMPT, ALPHABET, ALPHABET];
    expect(reply.choices.map(choice => choice.text)).toEqual(bare.choices.map((choice, index) => prompts[index] + choice.text));
    expect(reply.usage.completion_tokens).toBe(bare.usage.completion_tokens);
    const { texts } = await streamed({ prompt: [PROMPT, ALPHABET], n: 2, temperature: 1, seed: 1, echo: true });
    expect(texts).toEqual(reply.choices.map(choice => choice.text));
  });

  it('with logprobs scores the prompt as sampling would have, chunk after chunk', async () => {
    // Longer than two chunks of a scored prompt, and in the prefix cache beforehand.
    const prompt = 'The quick brown fox jumps over the lazy dog. '.repeat(15).trim();
    const bare = await complete({ prompt, max_tokens: 4, logprobs: 2 });
    const reply = await complete({ prompt, max_tokens: 4, logprobs: 2, echo: true });
    const choice = reply.choices[0]!;
    const { tokens, token_logprobs, top_logprobs } = choice.logprobs!;
    expect(choice.text).toBe(prompt + bare.choices[0]!.text);
    expect(tokens.join('')).toBe(choice.text);
    checkOffsets(choice);
    expect(tokens).toHaveLength(reply.usage.prompt_tokens + 4);
    expect(token_logprobs[0]).toBeNull();
    expect(top_logprobs[0]).toBeNull();
    expect(token_logprobs.slice(-4)).toEqual(bare.choices[0]!.logprobs!.token_logprobs.map(value => expect.closeTo(value!, 3)));
    for (const value of token_logprobs.slice(1)) expect(value).toBeLessThanOrEqual(0);
    expect(reply.usage.prompt_tokens_details.cached_tokens).toBe(0);
    // What follows a beginning of the prompt, asked for alone.
    for (const words of ['The quick brown fox', 'The quick brown fox jumps over the lazy']) {
      const next = (await complete({ prompt: words, max_tokens: 1, logprobs: 2 })).choices[0]!.logprobs!;
      const at = tokens.findIndex((_, index) => tokens.slice(0, index).join('') === words);
      for (const [token, value] of Object.entries(next.top_logprobs[0]!)) expect(top_logprobs[at]![token]).toBeCloseTo(value, 3);
    }
  });

  it('with max_tokens 0 scores and generates nothing', async () => {
    const scored = await complete({ prompt: PROMPT, max_tokens: 0, echo: true, logprobs: 1 });
    expect(scored.choices[0]).toMatchObject({ text: PROMPT, finish_reason: 'length' });
    expect(scored.choices[0]!.logprobs!.tokens).toHaveLength(scored.usage.prompt_tokens);
    expect(scored.usage.completion_tokens).toBe(0);
    checkOffsets(scored.choices[0]!);
    const bare = await complete({ prompt: [ALPHABET, PROMPT], max_tokens: 0, echo: true, n: 2 });
    expect(bare.choices.map(choice => choice.text)).toEqual([ALPHABET, ALPHABET, PROMPT, PROMPT]);
    const { texts, chunks } = await streamed({ prompt: PROMPT, max_tokens: 0, echo: true, logprobs: 1 });
    expect(texts).toEqual([PROMPT]);
    expect(chunks.flatMap(chunk => chunk.choices.flatMap(choice => choice.logprobs?.token_logprobs ?? []))).toHaveLength(
      scored.usage.prompt_tokens,
    );
  });

  it('does not let an earlier scored prompt change what a later request gets', async () => {
    const body = { prompt: `${ALPHABET}DEF`, max_tokens: 8, seed: 3, temperature: 1 };
    const before = await complete(body);
    await complete({ ...body, echo: true, logprobs: 5 });
    expect((await complete(body)).choices).toEqual(before.choices);
  });
});

describe('best_of', () => {
  it('returns the likeliest per token, and counts all', async () => {
    const body = { prompt: 'The best thing about rivers is', temperature: 1.2, seed: 11, max_tokens: 10, ignore_eos: true };
    const all = await complete({ ...body, n: 6, logprobs: 0 });
    const mean = (logprobs: Logprobs) => logprobs.token_logprobs.reduce((sum: number, value) => sum + value!, 0) / logprobs.tokens.length;
    const ranked = all.choices.toSorted((a, b) => mean(b.logprobs!) - mean(a.logprobs!)).map(choice => choice.text);
    const best = await complete({ ...body, n: 2, best_of: 6 });
    expect(best.choices.map(choice => choice.text)).toEqual(ranked.slice(0, 2));
    expect(best.choices.map(choice => [choice.index, choice.logprobs])).toEqual([
      [0, null],
      [1, null],
    ]);
    expect(best.usage.completion_tokens).toBe(60);
  });
});

describe('openai (npm)', () => {
  it('completes, streams, and gets typed errors', async () => {
    const whole = await client.completions.create({
      model: 'default',
      prompt: ALPHABET,
      temperature: 0,
      max_tokens: 8,
      logprobs: 2,
      echo: true,
    });
    expect(whole.choices[0]!.text.startsWith(ALPHABET)).toBe(true);
    expect(whole.choices[0]!.logprobs!.text_offset![0]).toBe(0);
    const stream = await client.completions.create({ model: 'default', prompt: ALPHABET, temperature: 0, max_tokens: 8, stream: true });
    let text = ALPHABET;
    for await (const chunk of stream) text += chunk.choices[0]!.text;
    expect(text).toBe(whole.choices[0]!.text);
    await expect(client.completions.create({ model: 'gpt-none', prompt: 'a' })).rejects.toThrow(OpenAI.NotFoundError);
    await expect(client.completions.create({ model: 'default', prompt: '' })).rejects.toThrow(OpenAI.BadRequestError);
  });
});

it('leaves no row in use', () => product.idle());
