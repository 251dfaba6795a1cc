/** /v1/embeddings on the whole product with the real embedding model: against an independent implementation, and by the clients that people use. */
import { readFileSync } from 'node:fs';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { OpenAIEmbeddings } from '@langchain/openai';
import { embedMany } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Product } from './product.ts';
import { pythonPath, runPython } from './python-packages.ts';

const MODEL = 'all-minilm-l6-v2';

interface Reference {
  dimensions: number;
  texts: { text: string; tokenIds: number[]; vector: string }[];
}
const { texts: REFERENCE } = JSON.parse(readFileSync(new URL(`../reference/${MODEL}.json`, import.meta.url), 'utf8')) as Reference;
const TEXTS = REFERENCE.map(({ text }) => text);

interface Reply {
  data: { index: number; embedding: number[] }[];
  model: string;
  usage: { prompt_tokens: number; total_tokens: number };
}

let product: Product;
let client: OpenAI;
beforeAll(async () => {
  product = await Product.start({
    embeddingModel: MODEL,
    batcherArguments: ['--max-batched-tokens', '256'],
    bindings: { SLUICE_KEY_SECRET: 'a-secret-of-some-length-for-keys-of-tests' },
  });
  client = new OpenAI({ baseURL: product.baseUrl, apiKey: product.key, maxRetries: 0 });
}, 300_000);
afterAll(() => product.stop());

async function embed(input: unknown, more: object = {}, key = product.key): Promise<Reply> {
  const response = await product.post('/embeddings', { model: MODEL, input, ...more }, { key });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Reply;
}

const floats = (base64: string) => [...new Float32Array(Uint8Array.from(Buffer.from(base64, 'base64')).buffer)];

function cosine(a: readonly number[], b: readonly number[]): number {
  const dot = a.reduce((sum, value, index) => sum + value * b[index]!, 0);
  return dot / (Math.hypot(...a) * Math.hypot(...b));
}

describe('fifty texts', () => {
  it('are what the independent implementation makes of them, alone and together', async () => {
    const together = await embed(TEXTS);
    expect(together.data.map(({ index }) => index)).toEqual([...TEXTS.keys()]);
    const alone = await Promise.all(TEXTS.map(async text => (await embed(text)).data[0]!.embedding));
    for (const [index, { text, vector }] of REFERENCE.entries()) {
      expect(cosine(floats(vector), together.data[index]!.embedding), text).toBeGreaterThan(0.99999);
      expect(cosine(floats(vector), alone[index]!), text).toBeGreaterThan(0.99999);
    }
    expect(together.usage.prompt_tokens).toBe(REFERENCE.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0));
  });

  it('are cut into tokens as it cuts them, and their tokens are as good as they', async () => {
    for (const { text, tokenIds } of REFERENCE) {
      const response = await fetch(new URL('/tokenize', product.baseUrl), {
        method: 'POST',
        headers: { authorization: `Bearer ${product.key}` },
        body: JSON.stringify({ model: MODEL, prompt: text }),
      });
      expect(((await response.json()) as { tokens: number[] }).tokens, text).toEqual(tokenIds);
    }
    const some = REFERENCE.slice(0, 5);
    const byIds = await embed(some.map(({ tokenIds }) => tokenIds));
    for (const [index, { vector }] of some.entries()) {
      expect(cosine(floats(vector), byIds.data[index]!.embedding)).toBeGreaterThan(0.99999);
    }
  });
});

describe('cases that break others', () => {
  it('case 22: the encoding is the one that was asked for, and another is refused', async () => {
    const asked = { model: MODEL, input: 'a' };
    const response = await product.post('/embeddings', { ...asked, encoding_format: 'base64' });
    const { data } = (await response.json()) as { data: { embedding: string }[] };
    expect(floats(data[0]!.embedding)).toEqual([...Float32Array.from((await embed('a', { encoding_format: 'float' })).data[0]!.embedding)]);
    const hex = await product.post('/embeddings', { ...asked, encoding_format: 'hex' });
    expect([hex.status, await hex.json()]).toMatchObject([400, { error: { param: 'encoding_format' } }]);
  });

  it('case 23: texts of equal and of very different lengths are what they are alone', async () => {
    const long = Array.from({ length: 200 }, (_, index) => ['river', 'stone', 'lantern', 'bridge'][index % 4]).join(' ');
    for (const pair of [
      ['red car', 'blue sky'],
      ['a', long],
      [long, 'a', 'a'],
    ]) {
      const { data } = await embed(pair);
      for (const [index, text] of pair.entries()) {
        expect(data[index]!.index).toBe(index);
        expect(cosine(data[index]!.embedding, (await embed(text)).data[0]!.embedding)).toBeGreaterThan(0.99999);
      }
    }
  });
});

describe('lengths', () => {
  it('a text that is too long is refused, or cut where that was asked for', async () => {
    const long = 'word '.repeat(400);
    const response = await product.post('/embeddings', { model: MODEL, input: ['a', long] });
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { error: { code: 'context_length_exceeded', param: 'input[1]', message: expect.stringContaining('256 tokens') } },
    ]);
    expect((await embed(long, { truncate_prompt_tokens: -1 })).usage.prompt_tokens).toBe(256);
    expect((await embed(long, { truncate_prompt_tokens: 10 })).usage.prompt_tokens).toBe(10);
  });

  it('fewer numbers are the first of them, of length 1', async () => {
    const whole = (await embed('a red car')).data[0]!.embedding.slice(0, 64);
    const cut = (await embed('a red car', { dimensions: 64 })).data[0]!.embedding;
    expect(cut).toHaveLength(64);
    expect(cosine(whole, cut)).toBeGreaterThan(0.999999);
    expect(Math.hypot(...cut)).toBeCloseTo(1, 5);
    expect((await product.post('/embeddings', { model: MODEL, input: 'a', dimensions: 385 })).status).toBe(400);
  });
});

describe('models', () => {
  it('default is the one that makes embeddings here, and each refuses what it does not do', async () => {
    expect((await embed('a', { model: 'default' })).model).toBe(MODEL);
    const refused = await product.post('/embeddings', { model: 'smollm2-135m-instruct', input: 'a' });
    expect([refused.status, await refused.json()]).toMatchObject([400, { error: { param: 'model' } }]);
    const chat = await product.post('/chat/completions', { model: MODEL, messages: [{ role: 'user', content: 'a' }] });
    expect(chat.status).toBe(400);
    const models = await client.models.list();
    expect(models.data.find(({ id }) => id === MODEL)).toMatchObject({
      dimensions: 384,
      endpoints: ['/v1/embeddings', '/tokenize', '/detokenize'],
    });
  });
});

describe('the account', () => {
  it('is charged the tokens that were counted, and limits hold', async () => {
    const made = await fetch(new URL('/admin/keys', product.baseUrl), {
      method: 'POST',
      headers: { authorization: `Bearer ${product.key}` },
      body: JSON.stringify({ tenant: 'vectors', limits: { tokens_per_minute: 100 } }),
    });
    const { key } = (await made.json()) as { key: string };
    expect((await embed('one two three', {}, key)).usage.total_tokens).toBe(5);
    const rows = async () => {
      const usage = await fetch(new URL('/admin/usage?tenant=vectors', product.baseUrl), {
        headers: { authorization: `Bearer ${product.key}` },
      });
      return ((await usage.json()) as { data: object[] }).data;
    };
    while ((await rows()).length === 0) await new Promise(resolve => setTimeout(resolve, 50));
    expect(await rows()).toMatchObject([{ model: MODEL, requests: 1, prompt_tokens: 5, completion_tokens: 0 }]);
    const tooMuch = await product.post('/embeddings', { model: MODEL, input: 'word '.repeat(99) }, { key });
    expect([tooMuch.status, await tooMuch.json()]).toMatchObject([400, { error: { code: 'request_exceeds_limit' } }]);
  });
});

it('a request of many texts holds up nobody: one that comes behind it is answered before', async () => {
  const many = Array.from({ length: 2_000 }, (_, index) => `text number ${index} of a rather large request`);
  const key = await product.makeKey('small');
  let isLargeDone = false;
  const large = embed(many).then(reply => {
    isLargeDone = true;
    return reply;
  });
  await new Promise(resolve => setTimeout(resolve, 300));
  await embed('a small one', {}, key);
  expect(isLargeDone).toBe(false);
  expect((await large).data).toHaveLength(2_000);
});

it('a request outlives its batcher: the next one goes on, and nothing is computed twice for its client', async () => {
  const many = Array.from({ length: 600 }, (_, index) => `text number ${index} of a request that loses its batcher`);
  const asked = embed(many);
  await new Promise(resolve => setTimeout(resolve, 700));
  process.kill(product.batcherPids.at(-1)!, 'SIGKILL');
  const { data } = await asked;
  expect(data.map(({ index }) => index)).toEqual([...many.keys()]);
  const again = await embed(many.slice(0, 20));
  for (const [index, { embedding }] of again.data.entries()) expect(cosine(embedding, data[index]!.embedding)).toBeGreaterThan(0.99999);
});

describe('clients', () => {
  const wanted = floats(REFERENCE[0]!.vector);
  const near = (vector: readonly number[]) => expect(cosine(vector, wanted)).toBeGreaterThan(0.99999);

  it('openai (npm), which asks for base64 by itself', async () => {
    const reply = await client.embeddings.create({ model: MODEL, input: TEXTS.slice(0, 3) });
    near(reply.data[0]!.embedding);
    expect(reply.usage).toEqual({ prompt_tokens: 14, total_tokens: 14 });
    await expect(client.embeddings.create({ model: MODEL, input: '' })).rejects.toThrow(OpenAI.BadRequestError);
  });

  it('openai (PyPI)', async () => {
    const program = `
import json, sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
reply = client.embeddings.create(model='${MODEL}', input=[sys.argv[3], 'b'])
print(json.dumps([d.embedding for d in reply.data]))`;
    const path = await pythonPath('openai==3.57.0');
    const vectors = JSON.parse(await runPython(program, { path, args: [product.baseUrl, product.key, TEXTS[0]!] })) as number[][];
    near(vectors[0]!);
  });

  it('LangChain', async () => {
    const model = new OpenAIEmbeddings({ model: MODEL, apiKey: product.key, configuration: { baseURL: product.baseUrl }, maxRetries: 0 });
    near(await model.embedQuery(TEXTS[0]!));
    expect(await model.embedDocuments(TEXTS.slice(0, 4))).toHaveLength(4);
  });

  it('AI SDK', async () => {
    const provider = createOpenAICompatible({ name: 'sluice', baseURL: product.baseUrl, apiKey: product.key });
    const { embeddings, usage } = await embedMany({ model: provider.embeddingModel(MODEL), values: TEXTS.slice(0, 3), maxRetries: 0 });
    near(embeddings[0]!);
    expect(usage.tokens).toBe(14);
  });
});
