/** ChatStream: chunk by chunk, the choices' roles and ends, whatever the events hold. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ChatBody } from '../../gateway/chat-body.ts';
import { chatStream } from '../../gateway/chat-stream.ts';
import type { DeltaEvent, FinishEvent } from '../../shared/token-event.ts';
import { chunksOf, parseSse, textOf } from './sse-client.ts';

const head = { id: 'chatcmpl-1', created: 1, model: 'm"\n' };
const finish: FinishEvent = {
  type: 'finish',
  id: 'j',
  attempt: 1,
  seq: 99,
  usage: { promptTokens: 3, completionTokens: 2, cachedTokens: 1 },
  timings: { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 },
};

function delta(seq: number, choice: number, text: string, more: Partial<DeltaEvent> = {}): DeltaEvent {
  return { type: 'delta', id: 'j', attempt: 1, seq, choice, tokenIds: [], text, ...more };
}

test('any interleaving of choices: streamed and whole say the same', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(2), fc.string({ unit: 'binary' }))), fc.boolean(), (steps, includeUsage) => {
      const stream = chatStream({ head, choiceCount: 3, includeUsage });
      const body = new ChatBody({ head, choiceCount: 3, wantsLogprobs: false });
      let text = '';
      const events = [
        ...steps.map(([choice, piece], seq) => delta(seq, choice, piece)),
        ...[2, 0, 1].map((choice, index) => delta(steps.length + index, choice, '', { finishReason: 'stop' })),
      ];
      for (const event of events) {
        text += stream.write(event);
        if (event.seq % 3 === 0) text += stream.heartbeat('working');
        body.write(event);
      }
      text += stream.write(finish);
      const whole = JSON.parse(body.write(finish)) as { model: string; choices: { message: { content: string }; finish_reason: string }[] };
      const chunks = chunksOf(parseSse(text));
      expect(whole.model).toBe(head.model);
      for (const index of [0, 1, 2]) {
        expect(textOf(chunks, index)).toBe(whole.choices[index]!.message.content);
        const own = chunks.flatMap(chunk => chunk.choices.filter(choice => choice.index === index));
        expect(own.map(choice => choice.finish_reason).filter(reason => reason !== null)).toEqual(['stop']);
        expect(own.filter(choice => choice.delta.role !== undefined).length).toBe(1);
        expect(own[0]!.delta.role).toBe('assistant');
        expect(own.at(-1)!.finish_reason).toBe('stop');
      }
      expect(chunks.filter(chunk => chunk.choices.length === 0).length).toBe(includeUsage ? 1 : 0);
    }),
  );
});

test('reasoning comes before text and calls, streamed and whole, with log-probabilities once', () => {
  const logprobs = [{ token: 'a', tokenId: 1, logprob: -1, bytes: [97], top: [] }];
  const events = [
    delta(0, 0, '', { reasoning: 'Hm', logprobs }),
    delta(1, 0, 'A', { reasoning: '.', logprobs, calls: [{ index: 0, name: 'f', arguments: '{}' }] }),
    delta(2, 0, '', { logprobs, finishReason: 'tool_calls' }),
  ];
  const usage = { ...finish.usage, reasoningTokens: 2 };
  const stream = chatStream({ head, choiceCount: 1, includeUsage: true });
  const text = [...events, { ...finish, usage }].map(event => stream.write(event)).join('');
  const chunks = chunksOf(parseSse(text));
  const choices = chunks.flatMap(chunk => chunk.choices);
  expect(choices.map(({ delta: { role, ...rest } }) => (role === undefined ? Object.keys(rest)[0] : 'role'))).toEqual([
    ...['role', 'reasoning_content', 'reasoning_content', 'content', 'tool_calls', 'tool_calls', 'content', undefined],
  ]);
  expect(choices.map(({ logprobs: told }) => told !== null)).toEqual([false, true, true, false, false, false, true, false]);
  expect(chunks.at(-1)!.usage).toMatchObject({ completion_tokens_details: { reasoning_tokens: 2 } });
  const body = new ChatBody({ head, choiceCount: 1, wantsLogprobs: true });
  for (const event of events) body.write(event);
  expect(JSON.parse(body.write({ ...finish, usage }))).toMatchObject({
    choices: [{ message: { reasoning_content: 'Hm.', content: 'A', tool_calls: [{ function: { name: 'f' } }] } }],
    usage: { completion_tokens_details: { reasoning_tokens: 2 } },
  });
});

test('the last finish_reason is not told before the job has ended', () => {
  const stream = chatStream({ head, choiceCount: 1, includeUsage: false });
  expect(stream.write(delta(0, 0, 'a', { finishReason: 'length' }))).not.toContain('"length"');
  expect(stream.write(finish)).toContain('"length"');
});

test('text that is held back adds nothing, and its logprobs are not lost', () => {
  const stream = chatStream({ head, choiceCount: 1, includeUsage: false });
  expect(stream.write(delta(0, 0, ''))).toBe('');
  const logprobs = [{ token: 'a', tokenId: 1, logprob: -1, bytes: [97], top: [{ token: 'b', tokenId: 2, logprob: -2, bytes: [98] }] }];
  const chunks = parseSse(stream.write(delta(1, 0, '', { logprobs }))).events.map(event => JSON.parse(event.data));
  expect(chunks.at(-1).choices[0].logprobs.content[0]).toEqual({
    token: 'a',
    logprob: -1,
    bytes: [97],
    top_logprobs: [{ token: 'b', logprob: -2, bytes: [98] }],
  });
});

test('a choice that nobody asked for is not shown', () => {
  const stream = chatStream({ head, choiceCount: 1, includeUsage: false });
  expect(stream.write(delta(0, 5, 'x'))).toBe('');
});

test('usage so far: each chunk counts the tokens up to and with its own, those of the whole answer at the end', () => {
  const stream = chatStream({ head, choiceCount: 1, includeUsage: true, hasRunningUsage: true });
  const text = [
    stream.write({ type: 'accepted', id: 'j', attempt: 1, seq: 0, promptTokens: 3 }),
    stream.write(delta(1, 0, 'a', { tokenIds: [1] })),
    stream.write(delta(2, 0, '', { tokenIds: [2, 3] })),
    stream.write(delta(3, 0, 'bcd', { tokenIds: [4], finishReason: 'stop' })),
    stream.write({ ...finish, usage: { promptTokens: 3, completionTokens: 4, cachedTokens: 1 } }),
  ].join('');
  const chunks = chunksOf(parseSse(text));
  expect(chunks.map(chunk => chunk.usage?.completion_tokens)).toEqual([1, 1, 4, 4, 4]);
  expect(chunks.every(chunk => chunk.usage?.prompt_tokens === 3)).toBe(true);
  expect(chunks.filter(chunk => chunk.usage?.prompt_tokens_details !== undefined)).toHaveLength(1);
});

test('calls: the first piece has id, type and name, the others arguments; whole and streamed they are the same', () => {
  const pieces: [choice: number, more: Partial<DeltaEvent>, text?: string][] = [
    [0, { calls: [{ index: 0, name: 'f', arguments: '' }] }],
    [1, {}, 'Sure.'],
    [0, { calls: [{ index: 0, arguments: '{"a"' }] }],
    [1, { calls: [{ index: 0, name: 'g', arguments: '{' }] }],
    [
      0,
      {
        calls: [
          { index: 0, arguments: ':1}' },
          { index: 1, name: 'f', arguments: '{}' },
        ],
      },
    ],
    [1, { calls: [{ index: 0, arguments: '}' }], finishReason: 'tool_calls' }],
    [0, { finishReason: 'length' }],
  ];
  const events = pieces.map(([choice, more, text = ''], seq) => delta(seq, choice, text, more));
  const stream = chatStream({ head, choiceCount: 2, includeUsage: false });
  const chunks = chunksOf(parseSse(events.map(event => stream.write(event)).join('') + stream.write(finish)));
  const deltas = (index: number) =>
    chunks.flatMap(chunk => chunk.choices.filter(one => one.index === index)).map(one => one.delta as object);
  const [first, second, other] = ['call_chatcmpl10000', 'call_chatcmpl10001', 'call_chatcmpl11000'];
  expect(deltas(0)).toEqual([
    {
      ...{ role: 'assistant', content: null, refusal: null },
      tool_calls: [{ index: 0, id: first, type: 'function', function: { name: 'f', arguments: '' } }],
    },
    { tool_calls: [{ index: 0, function: { arguments: '{"a"' } }] },
    { tool_calls: [{ index: 0, function: { arguments: ':1}' } }] },
    { tool_calls: [{ index: 1, id: second, type: 'function', function: { name: 'f', arguments: '' } }] },
    { tool_calls: [{ index: 1, function: { arguments: '{}' } }] },
    {},
  ]);
  expect(deltas(1)).toEqual([
    { role: 'assistant', content: '', refusal: null },
    { content: 'Sure.' },
    { tool_calls: [{ index: 0, id: other, type: 'function', function: { name: 'g', arguments: '' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '{' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '}' } }] },
    {},
  ]);
  const body = new ChatBody({ head, choiceCount: 2, wantsLogprobs: false });
  for (const event of events) body.write(event);
  const call = (id: string, name: string, json: string) => ({ id, type: 'function', function: { name, arguments: json } });
  expect(JSON.parse(body.write(finish))).toMatchObject({
    choices: [
      { message: { content: null, tool_calls: [call(first, 'f', '{"a":1}'), call(second, 'f', '{}')] }, finish_reason: 'length' },
      { message: { content: 'Sure.', tool_calls: [call(other, 'g', '{}')] }, finish_reason: 'tool_calls' },
    ],
  });
});

test('an answer that had to call one function by its name ends with stop, one that was cut with length', () => {
  for (const [reason, told] of [
    ['tool_calls', 'stop'],
    ['length', 'length'],
    ['stop', 'stop'],
  ] as const) {
    const call = delta(0, 0, '', { calls: [{ index: 0, name: 'f', arguments: '{}' }], finishReason: reason });
    const stream = chatStream({ head, choiceCount: 1, includeUsage: false, hasNamedCall: true });
    const chunks = chunksOf(parseSse(stream.write(call) + stream.write(finish)));
    expect(chunks.flatMap(chunk => chunk.choices.flatMap(choice => choice.finish_reason ?? []))).toEqual([told]);
    const body = new ChatBody({ head, choiceCount: 1, wantsLogprobs: false, hasNamedCall: true });
    body.write(call);
    expect(JSON.parse(body.write(finish))).toMatchObject({ choices: [{ finish_reason: told }] });
  }
});
