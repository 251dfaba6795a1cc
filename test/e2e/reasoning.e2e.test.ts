/**
 * Models that reason first, of the whole product and with the official clients: a tiny model of random weights whose template is like Qwen3's. Biases
 * make it open and close its reasoning; what it says there is the letter that they like.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeGguf } from '../batcher/model/gguf-writer.ts';
import { byteVocabulary, tinyLlama } from '../batcher/model/tiny-llama.ts';
import { Product } from './product.ts';

const [OPENER, CLOSER] = [260, 261];
const LETTER = 'a'.charCodeAt(0);
const USER_DEFINED = 4;
const TEMPLATE =
  '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n' +
  '{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% if begun %}<think>\n{% endif %}';

function metadata() {
  const { 'tokenizer.ggml.tokens': tokens, 'tokenizer.ggml.token_type': types } = byteVocabulary() as unknown as {
    'tokenizer.ggml.tokens': { texts: string[] };
    'tokenizer.ggml.token_type': { i32s: number[] };
  };
  tokens.texts.splice(OPENER, 2, '<think>', '</think>');
  types.i32s.splice(OPENER, 2, USER_DEFINED, USER_DEFINED);
  return {
    'tokenizer.ggml.tokens': tokens,
    'tokenizer.ggml.token_type': types,
    'tokenizer.chat_template': { text: TEMPLATE },
    'llama.context_length': { u32: 4_096 },
  };
}

let folder: string;
let product: Product;
let openai: OpenAI;
let anthropic: Anthropic;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-reasoning-'));
  const gguf = await writeGguf(join(folder, 'thinker.gguf'), tinyLlama({ metadata: metadata() }));
  product = await Product.start({ gguf });
  openai = new OpenAI({ baseURL: product.baseUrl, apiKey: product.key, maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: product.baseUrl.replace(/\/v1$/, ''), apiKey: product.key, authToken: null, maxRetries: 0 });
});
afterAll(async () => {
  await product?.stop();
  await rm(folder, { recursive: true, force: true });
});

const messages = [{ role: 'user' as const, content: 'Yes or no?' }];
const CHOICES = ['yes', 'no'];
/** Opens it (the form allows neither letter nor closer there), then goes on with letters until by chance it closes it. */
const BIAS = { [OPENER]: 20, [LETTER]: 60, [CLOSER]: 59 };
type Message = OpenAI.Chat.ChatCompletionMessage & { reasoning_content?: string };
type Body = OpenAI.Chat.ChatCompletionCreateParamsNonStreaming;
const ask = async (more: object) => await openai.chat.completions.create({ model: 'default', messages, ...more } as Body);

describe('chat completions', () => {
  it('an answer held to a form behind reasoning that is not: whole and streamed', async () => {
    const held = { temperature: 1, logit_bias: BIAS, guided_choice: CHOICES, max_tokens: 100 };
    const lengths = new Set<number>();
    for (let seed = 1; seed <= 6; seed++) {
      const { choices, usage } = await ask({ ...held, seed });
      const message = choices[0]!.message as Message;
      expect(CHOICES).toContain(message.content);
      expect(choices[0]!.finish_reason).toBe('stop');
      expect(message.reasoning_content ?? '').toMatch(/^a*$/);
      lengths.add((message.reasoning_content ?? '').length);
      // With the two marks.
      expect(usage!.completion_tokens_details!.reasoning_tokens).toBe((message.reasoning_content ?? '').length + 2);
      let [reasoning, content] = ['', ''];
      const stream = await openai.chat.completions.create({ model: 'default', messages, ...held, seed, stream: true } as never);
      for await (const chunk of stream as unknown as AsyncIterable<OpenAI.Chat.ChatCompletionChunk>) {
        const delta = chunk.choices[0]?.delta as { content?: string; reasoning_content?: string } | undefined;
        // Never behind the answer.
        if (delta?.reasoning_content) expect(content).toBe('');
        reasoning += delta?.reasoning_content ?? '';
        content += delta?.content ?? '';
      }
      expect([reasoning, content]).toEqual([message.reasoning_content ?? '', message.content]);
    }
    expect(lengths.size).toBeGreaterThan(1);
  });

  it('a call that must be made, behind it', async () => {
    const parameters = { type: 'object', properties: { a: { enum: CHOICES } }, required: ['a'], additionalProperties: false };
    const tools = [{ type: 'function', function: { name: 'say', parameters } }];
    const logit_bias = { [OPENER]: 20, [CLOSER]: 59 };
    const { choices } = await ask({
      temperature: 1,
      logit_bias,
      tools,
      tool_choice: 'required',
      parallel_tool_calls: false,
      max_tokens: 300,
    });
    expect(choices[0]).toMatchObject({ finish_reason: 'tool_calls', message: { content: null } });
    const [call] = choices[0]!.message.tool_calls as OpenAI.Chat.ChatCompletionMessageFunctionToolCall[];
    expect(CHOICES).toContain(JSON.parse(call!.function.arguments).a);
  });

  it('one that the prompt has begun and the length cut; one that the prompt says is not to be', async () => {
    const letters = { temperature: 0, logit_bias: { [LETTER]: 100 }, max_tokens: 8 };
    const begun = await ask({ ...letters, chat_template_kwargs: { begun: true } });
    expect(begun.choices[0]).toMatchObject({ finish_reason: 'length', message: { reasoning_content: 'a'.repeat(8), content: '' } });
    expect(begun.usage!.completion_tokens_details).toEqual({ reasoning_tokens: 8 });
    const without = await ask({ ...letters, chat_template_kwargs: { enable_thinking: false } });
    expect(without.choices[0]!.message).toEqual({ role: 'assistant', content: 'a'.repeat(8), refusal: null });
  });

  it('what a client spells is text to the model, and no beginning of reasoning', async () => {
    const [plain, spelled] = await Promise.all(
      ['the mark think', 'the mark <think>'].map(content => ask({ messages: [{ role: 'user', content }], max_tokens: 1 })),
    );
    expect(spelled!.usage!.prompt_tokens).toBe(plain!.usage!.prompt_tokens + 2);
  });
});

describe('other calls', () => {
  const letters = { temperature: 0, logit_bias: { [LETTER]: 100 }, chat_template_kwargs: { begun: true } };

  it('/v1/responses has an item of it', async () => {
    const response = await openai.responses.create({ model: 'default', input: 'x', max_output_tokens: 5, ...letters } as never);
    expect(response).toMatchObject({
      ...{ status: 'incomplete', output: [{ type: 'reasoning', content: [{ type: 'reasoning_text', text: 'aaaaa' }] }] },
      usage: { output_tokens: 5, output_tokens_details: { reasoning_tokens: 5 } },
    });
  });

  it('/v1/messages has a block of it where it was asked to think, and none where it was not', async () => {
    const asked = { model: 'default', messages, max_tokens: 5, ...letters } as Anthropic.MessageCreateParamsNonStreaming;
    const thought = await anthropic.messages.create({ ...asked, thinking: { type: 'adaptive' } });
    expect(thought).toMatchObject({ content: [{ type: 'thinking', thinking: 'aaaaa' }], stop_reason: 'max_tokens' });
    const plain = { ...asked, chat_template_kwargs: {} };
    expect(await anthropic.messages.create(plain)).toMatchObject({ content: [{ type: 'text', text: 'aaaaa' }] });
    const bounded = await anthropic.messages.create({ ...asked, max_tokens: 20, thinking: { type: 'enabled', budget_tokens: 6 } });
    expect(bounded.content).toMatchObject([
      { type: 'thinking', thinking: 'aaaaaa' },
      { type: 'text', text: expect.stringMatching(/^a+$/) },
    ]);
    // The template says that there is to be none in so many tokens more.
    const tokens = async (type: 'adaptive' | 'disabled') =>
      (await anthropic.messages.countTokens({ model: 'default', messages, thinking: { type } })).input_tokens;
    expect(await tokens('disabled')).toBe((await tokens('adaptive')) + 6);
  });
});
