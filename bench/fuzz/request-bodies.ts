/** RequestBodies: valid bodies with something strange in them, as values or as bytes, and bodies that never were valid, for every route that takes one. */
import type { Stack } from '../stack.ts';
import type { Dice } from './dice.ts';
import { checkReply, type Dialect } from './reply-check.ts';
import { damaged, distorted, strangeNumber, strangeText, strangeValue } from './strange-values.ts';
import type { LiveSurface } from './surface.ts';

const HANG_MS = 60_000;

/** Every field that a body can have. */
const VALID: readonly { path: string; body: Record<string, unknown> }[] = [
  {
    path: '/v1/chat/completions',
    body: {
      model: 'default',
      messages: [
        { role: 'system', content: 'Be brief.', name: 'operator' },
        { role: 'user', content: [{ type: 'text', text: 'Say one word.' }] },
        {
          ...{ role: 'assistant', content: null, reasoning_content: 'Hm.' },
          tool_calls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'done' },
        { role: 'user', content: 'And another.' },
      ],
      ...{ max_tokens: 2, temperature: 0.7, top_p: 0.9, n: 1, seed: 7, stop: ['\n'], presence_penalty: 0.1, frequency_penalty: 0.1 },
      ...{ logit_bias: { 11: -5 }, logprobs: true, top_logprobs: 2, top_k: 40, min_p: 0.05, typical_p: 0.9, repetition_penalty: 1.1 },
      ...{ min_tokens: 1, ignore_eos: false, stream: true, stream_options: { include_usage: true }, service_tier: 'auto', user: 'u' },
      ...{
        store: false,
        metadata: { a: 'b' },
        parallel_tool_calls: true,
        tools: [],
        tool_choice: 'none',
        response_format: { type: 'text' },
      },
      ...{ modalities: ['text'], max_completion_tokens: 2, chat_template_kwargs: { enable_thinking: false, style: 'x' } },
    },
  },
  {
    path: '/v1/chat/completions',
    body: { model: 'default', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 1, temperature: 0 },
  },
  {
    path: '/v1/completions',
    body: {
      ...{
        model: 'default',
        prompt: ['One', 'Two'],
        max_tokens: 2,
        temperature: 0.5,
        best_of: 1,
        n: 1,
        echo: true,
        logprobs: 2,
        stop: 'x',
      },
      ...{ suffix: null, stream: false, seed: 1, user: 'u', logit_bias: { 5: 1 } },
    },
  },
  { path: '/v1/completions', body: { model: 'default', prompt: [1, 2, 3, 4], max_tokens: 1 } },
  {
    path: '/v1/responses',
    body: {
      model: 'default',
      input: [
        { role: 'user', content: [{ type: 'input_text', text: 'Say one word.' }] },
        { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'Hm.' }] },
        { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{"a":1}' },
        { type: 'function_call_output', call_id: 'c1', output: 'done' },
        { type: 'message', role: 'user', content: 'And another.' },
      ],
      ...{
        instructions: 'Be brief.',
        max_output_tokens: 2,
        temperature: 0.7,
        top_p: 0.9,
        stream: true,
        store: false,
        metadata: { a: 'b' },
      },
      ...{
        text: { format: { type: 'text' } },
        chat_template_kwargs: { enable_thinking: true },
        parallel_tool_calls: true,
        tool_choice: 'none',
      },
      tools: [{ type: 'function', name: 'f', description: 'd', parameters: { type: 'object', properties: {} }, strict: true }],
    },
  },
  {
    path: '/v1/messages',
    body: {
      model: 'default',
      system: [{ type: 'text', text: 'Be brief.' }],
      messages: [
        { role: 'user', content: 'Say one word.' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'Hm.', signature: '' },
            { type: 'tool_use', id: 'c1', name: 'f', input: { a: 1 } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c1', content: 'done' }] },
      ],
      ...{ max_tokens: 2, temperature: 0.7, top_p: 0.9, top_k: 5, stop_sequences: ['\n'], stream: true, metadata: { user_id: 'u' } },
      ...{ thinking: { type: 'enabled', budget_tokens: 1 }, chat_template_kwargs: { style: 'x' }, tool_choice: { type: 'none' } },
      tools: [{ name: 'f', description: 'd', input_schema: { type: 'object', properties: {} }, strict: true }],
    },
  },
  {
    path: '/v1/messages/count_tokens',
    body: {
      ...{ model: 'default', system: 'Be brief.', messages: [{ role: 'user', content: 'Hello' }], tool_choice: { type: 'auto' } },
      tools: [{ name: 'f', input_schema: { type: 'object', properties: {} } }],
    },
  },
  { path: '/v1/responses', body: { model: 'default', input: 'Hello', max_output_tokens: 1, store: true } },
  { path: '/admin/tenants', body: { name: 'fuzzed', limits: { requests_per_minute: 5, tokens_per_day: null }, weight: 1 } },
  {
    path: '/admin/keys',
    body: { tenant: 'fuzzed', name: 'k', scopes: ['infer'], expires_at: 4102444800, limits: { concurrent_requests: 1 } },
  },
];

const DIALECTS: ReadonlyMap<string, Dialect> = new Map([
  ['/v1/responses', 'responses'],
  ['/v1/messages', 'messages'],
  ['/v1/messages/count_tokens', 'messages'],
]);

export const requestBodies: LiveSurface = {
  what: 'request bodies at the gateway',
  async open(stack) {
    return { width: 16, feed: dice => feed(stack, dice) };
  },
};

async function feed(stack: Stack, dice: Dice): Promise<string> {
  const { path, body } = dice.pick(VALID);
  const bytes = bytesOf(body, dice);
  const response = await fetch(new URL(path, stack.target.baseUrl), {
    method: 'POST',
    headers: { authorization: `Bearer ${stack.target.apiKey}`, 'content-type': 'application/json' },
    body: new Uint8Array(bytes),
    signal: AbortSignal.timeout(HANG_MS),
  });
  // A key that was made is shown once, and is no leak.
  return (await checkReply(response, stack.target.apiKey, DIALECTS.get(path))).outcome;
}

function bytesOf(body: Record<string, unknown>, dice: Dice): Buffer {
  const json = JSON.stringify(body);
  switch (dice.below(8)) {
    case 0:
      return Buffer.from(madeUp(dice));
    case 1:
      return damaged(Buffer.from(json), dice);
    case 2:
      // A number, or a text, spelled as JSON.stringify never would.
      return Buffer.from(replacedOne(json, /(?<=[:[,])-?\d+(\.\d+)?(?=[,}\]])/g, strangeNumber(dice), dice));
    case 3:
      return Buffer.from(
        replacedOne(json, /"(?=[}\],])/g, `${dice.pick(['\\ud800', '\\u0000', '\\udc00\\ud800', '\u0001', '\\x'])}"`, dice),
      );
    case 4:
      // Twice the same key, or one that means something to JavaScript.
      return Buffer.from(
        json.replace(
          '{',
          `{${JSON.stringify(dice.pick([...Object.keys(body), '__proto__', 'constructor', '']))}:${JSON.stringify(strangeValue(dice))},`,
        ),
      );
    default: {
      let value: unknown = body;
      for (let times = dice.between(1, 3); times > 0; times--) value = distorted(value, dice);
      return Buffer.from(JSON.stringify(value) ?? '');
    }
  }
}

/** Never a body. */
function madeUp(dice: Dice): string {
  const deep = dice.pick([60, 65, 70, 2_000, 200_000]);
  return dice.pick([
    () => '['.repeat(deep),
    () => '{"a":'.repeat(deep),
    () => `{"messages":${'['.repeat(deep)}${']'.repeat(deep)}}`,
    () => `{"model":"default","messages":[${'{"role":"user","content":"x"},'.repeat(5_000)}{}]}`,
    () => `{"prompt":[${'0,'.repeat(300_000)}0],"model":"default","max_tokens":1}`,
    () => `{"stop":[${'"x",'.repeat(50_000)}"x"]}`,
    () => `{"logit_bias":{${Array.from({ length: 5_000 }, (_, i) => `"${i}":1`).join()}}}`,
    () => `"${'\\'.repeat(dice.between(1, 50_000))}"`,
    () => `{"model":${JSON.stringify(strangeText(dice))}}`,
    () => ' '.repeat(dice.between(0, 5 << 20)),
    () => strangeText(dice, 1_000_000),
    () => JSON.stringify(strangeValue(dice)) ?? '',
  ])();
}

function replacedOne(text: string, pattern: RegExp, by: string, dice: Dice): string {
  const found = [...text.matchAll(pattern)];
  if (found.length === 0) return text + by;
  const { index, 0: old } = dice.pick(found);
  return text.slice(0, index) + by + text.slice(index + old.length);
}
