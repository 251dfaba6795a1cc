/** /tokenize, /detokenize and what /v1/models tells, on the whole product with the real model. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Product, user } from './product.ts';

let product: Product;
beforeAll(async () => {
  product = await Product.start({ batcherArguments: ['--max-running', '2', '--prefetch', '1'] });
});
afterAll(() => product.stop());

interface Tokens {
  count: number;
  max_model_len: number;
  tokens: number[];
  token_strs: string[] | null;
}

const call = (path: string, body: object, key = product.key) =>
  fetch(new URL(path, product.baseUrl), {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

async function tokenize(body: object): Promise<Tokens> {
  const response = await call('/tokenize', body);
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Tokens;
}

describe('tokens', () => {
  it('of a text, and the text of them', async () => {
    const words = 'The capital of France is <|im_end|> 漢字 😀';
    const { tokens, ...rest } = await tokenize({ model: 'default', prompt: words });
    expect(rest).toEqual({ count: tokens.length, max_model_len: 8192, token_strs: null });
    const response = await call('/detokenize', { tokens });
    expect(await response.json()).toEqual({ prompt: words });
  });

  it('are those that a completion has, and a chat', async () => {
    const prompt = 'Once upon a time, <|im_start|>';
    const completion = await product.post('/completions', { model: 'default', prompt, max_tokens: 1 });
    const { usage } = (await completion.json()) as { usage: { prompt_tokens: number } };
    expect((await tokenize({ prompt })).count).toBe(usage.prompt_tokens);
    const messages = [{ role: 'system', content: 'Be brief.' }, user('Who <|im_start|> are you?')];
    const chat = await product.chat({ messages, max_tokens: 1 });
    expect((await tokenize({ messages })).count).toBe(chat.usage.prompt_tokens);
  });

  it('are refused with the name of the field', async () => {
    const refusal = async (path: string, body: object) => {
      const response = await call(path, body);
      return [response.status, ((await response.json()) as { error: { param: string; code: string } }).error.param];
    };
    expect(await refusal('/tokenize', {})).toEqual([400, 'prompt']);
    expect(await refusal('/tokenize', { prompt: 'a', model: 'none' })).toEqual([404, 'model']);
    expect(await refusal('/detokenize', { tokens: [49_152] })).toEqual([400, 'tokens']);
    expect((await call('/tokenize', { prompt: 'a' }, 'sk-wrong')).status).toBe(401);
    expect((await fetch(new URL('/tokenize', product.baseUrl))).status).toBe(401);
  });
});

it('needs no row: it is answered while others have all of them and more wait', async () => {
  const abort = new AbortController();
  const hogs = Array.from({ length: 5 }, () =>
    product.post(
      '/chat/completions',
      { model: 'default', messages: [user('Write a long story.')], max_tokens: 1500, ignore_eos: true, stream: true },
      { signal: abort.signal },
    ),
  );
  await Promise.all(hogs);
  while ((await product.runningCount()) < 3) await new Promise(resolve => setTimeout(resolve, 50));
  expect((await tokenize({ prompt: 'Hello' })).count).toBe(1);
  // None of them had ended meanwhile.
  expect(await product.runningCount()).toBeGreaterThanOrEqual(3);
  abort.abort();
  await product.idle();
});

it('counts as a request and as no tokens', async () => {
  const response = await call('/tokenize', { prompt: 'word '.repeat(1_000) });
  const before = Number(response.headers.get('x-ratelimit-remaining-requests'));
  const next = await call('/tokenize', { prompt: 'a' });
  expect(Number(next.headers.get('x-ratelimit-remaining-requests'))).toBe(before - 1);
  expect(next.headers.get('x-ratelimit-remaining-tokens')).toBe(response.headers.get('x-ratelimit-remaining-tokens'));
});

it('models tell their limits and what they answer', async () => {
  const response = await fetch(`${product.baseUrl}/models/default`, { headers: { authorization: `Bearer ${product.key}` } });
  expect(await response.json()).toMatchObject({
    id: 'smollm2-135m-instruct',
    object: 'model',
    context_length: 8192,
    max_model_len: 8192,
    max_output_tokens: 8191,
    endpoints: [
      '/v1/chat/completions',
      '/v1/completions',
      '/v1/responses',
      '/v1/messages',
      '/v1/messages/count_tokens',
      '/tokenize',
      '/detokenize',
    ],
  });
});
