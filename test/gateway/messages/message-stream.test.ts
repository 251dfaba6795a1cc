import { describe, expect, test } from 'vitest';
import { MessageBody } from '../../../gateway/messages/message-body.ts';
import { MessageStream } from '../../../gateway/messages/message-stream.ts';
import { decodeReply, encodeReply } from '../../../gateway/response-cache.ts';
import { ApiError } from '../../../shared/errors.ts';
import type { AnswerEvent, CallDelta } from '../../../shared/token-event.ts';
import { parseSse } from '../sse-client.ts';

const HEAD = { id: 'msg_1', model: 'm', serviceClass: 'flex' } as const;
const head = (seq: number) => ({ id: 'msg_1', attempt: 1, seq });
const ACCEPTED: AnswerEvent = { type: 'accepted', promptTokens: 9, ...head(0) };
const FINISH: AnswerEvent = {
  ...{ type: 'finish', usage: { promptTokens: 9, cachedTokens: 4, completionTokens: 2 }, ...head(3) },
  timings: { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 },
};
const delta = (seq: number, text: string, more: object = {}): AnswerEvent => ({
  ...{ type: 'delta', choice: 0, tokenIds: [1], text, ...head(seq), ...more },
});

test('the ids stand behind what they complete, and the usage is told in two halves that belong together', () => {
  const stream = new MessageStream(HEAD);
  const text = [ACCEPTED, delta(1, ''), delta(2, 'Hé', { finishReason: 'length' }), FINISH].map(event => stream.write(event)).join('');
  expect(text.match(/^id: \d+$/gm)).toEqual(['id: 0', 'id: 2', 'id: 3']);
  const events = parseSse(text).events.map(({ data }) => JSON.parse(data));
  expect(events.map(({ type }) => type)).toEqual([
    ...['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop'],
  ]);
  expect(events[0].message).toMatchObject({ content: [], stop_reason: null, usage: { input_tokens: 9, output_tokens: 0 } });
  expect(events[4]).toMatchObject({
    delta: { stop_reason: 'max_tokens', stop_sequence: null },
    usage: { input_tokens: 5, cache_read_input_tokens: 4, output_tokens: 2, service_tier: 'batch' },
  });
});

test('a heartbeat is a comment, and a ping as well once the message has begun', () => {
  const stream = new MessageStream(HEAD);
  const early = stream.heartbeat('queued position=1');
  const begun = stream.write(ACCEPTED);
  const late = stream.heartbeat('working');
  const { events, comments } = parseSse(early + begun + late + stream.write(delta(1, 'a')));
  expect(comments).toEqual(['queued position=1', 'working']);
  expect(events.map(({ event }) => event)).toEqual(['message_start', 'ping', 'content_block_start', 'content_block_delta']);
  expect(JSON.parse(events[1]!.data)).toEqual({ type: 'ping' });
});

test('an error has an id where the job itself ended so', () => {
  const stream = new MessageStream(HEAD);
  const error = new ApiError('generation_failed', 'No luck.');
  expect(stream.failure(error, 7)).toBe(`id: 7\n${stream.failure(error, undefined)}`);
  expect(parseSse(stream.failure(error, 7)).events).toMatchObject([{ event: 'error', id: '7' }]);
});

test('thoughts are a block in front, the same from the cache', () => {
  const events: AnswerEvent[] = [
    ACCEPTED,
    delta(1, '', { reasoning: 'Hm' }),
    delta(2, 'So', { reasoning: '.' }),
    delta(3, '.'),
    { ...FINISH, seq: 4 },
  ];
  const content = [
    { type: 'thinking', thinking: 'Hm.', signature: '' },
    { type: 'text', text: 'So.', citations: null },
  ];
  const kept = decodeReply(encodeReply('m', events)!, 'msg_1').events;
  expect(kept).toHaveLength(3);
  for (const told of [events, kept]) {
    const body = new MessageBody(HEAD);
    expect(JSON.parse(told.map(event => body.write(event)).join(''))).toMatchObject({ content });
  }
  const stream = new MessageStream(HEAD);
  const told = parseSse(events.map(event => stream.write(event)).join('')).events.map(({ data }) => JSON.parse(data));
  expect(told.slice(1, 5)).toEqual([
    { type: 'content_block_start', index: 0, content_block: { type: 'thinking', thinking: '', signature: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'thinking_delta', thinking: 'Hm' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'thinking_delta', thinking: '.' } },
    { type: 'content_block_stop', index: 0 },
  ]);
});

describe('calls', () => {
  const made = (seq: number, calls: CallDelta[], text = '', more: object = {}) => delta(seq, text, { calls, ...more });
  const EVENTS: AnswerEvent[] = [
    ACCEPTED,
    delta(1, 'I '),
    delta(2, 'look.'),
    made(3, [{ index: 0, name: 'look', arguments: '' }]),
    made(4, [{ index: 0, arguments: '{"at":"' }]),
    // The rest of a call, text, and the next call, in one step.
    made(
      5,
      [
        { index: 0, arguments: 'é"}' },
        { index: 1, name: 'add', arguments: '{"a":' },
      ],
      'And I add.',
    ),
    made(6, [{ index: 1, arguments: '1}' }]),
    delta(7, 'So.'),
    made(8, [{ index: 2, name: 'end', arguments: '{}' }], '', { finishReason: 'tool_calls' }),
    { ...FINISH, seq: 9 },
  ];
  const CONTENT = [
    { type: 'text', text: 'I look.', citations: null },
    { type: 'tool_use', id: 'toolu_msg10000', name: 'look', input: { at: 'é' }, caller: { type: 'direct' } },
    { type: 'text', text: 'And I add.', citations: null },
    { type: 'tool_use', id: 'toolu_msg10001', name: 'add', input: { a: 1 }, caller: { type: 'direct' } },
    { type: 'text', text: 'So.', citations: null },
    { type: 'tool_use', id: 'toolu_msg10002', name: 'end', input: {}, caller: { type: 'direct' } },
  ];
  const told = (events: AnswerEvent[]) => {
    const stream = new MessageStream(HEAD);
    return parseSse(events.map(event => stream.write(event)).join('')).events.map(({ data }) => JSON.parse(data));
  };
  const whole = (events: AnswerEvent[]) => {
    const body = new MessageBody(HEAD);
    return JSON.parse(events.map(event => body.write(event)).join(''));
  };

  test('each is a block, begun once, told in pieces and stopped before the next', () => {
    const events = told(EVENTS);
    expect(events.slice(1, 8)).toEqual([
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '', citations: null } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'I ' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'look.' } },
      { type: 'content_block_stop', index: 0 },
      { type: 'content_block_start', index: 1, content_block: { ...CONTENT[1], input: {} } },
      { type: 'content_block_delta', index: 1, delta: { type: 'input_json_delta', partial_json: '{"at":"' } },
      { type: 'content_block_delta', index: 1, delta: { type: 'input_json_delta', partial_json: 'é"}' } },
    ]);
    const blocks = Map.groupBy(events.slice(1, -2), ({ index }) => index as number);
    expect([...blocks.keys()]).toEqual([...CONTENT.keys()]);
    // They do not overlap.
    expect([...blocks.values()].flat()).toEqual(events.slice(1, -2));
    for (const [index, steps] of blocks) {
      const types = steps.map(({ type }) => type);
      expect([types[0], types.at(-1)], String(index)).toEqual(['content_block_start', 'content_block_stop']);
      expect(new Set(types.slice(1, -1))).toEqual(new Set(['content_block_delta']));
    }
    expect(events.at(-2)).toMatchObject({ type: 'message_delta', delta: { stop_reason: 'tool_use', stop_sequence: null } });
  });

  test('whole they are the same, from the cache too', () => {
    expect(whole(EVENTS)).toMatchObject({ content: CONTENT, stop_reason: 'tool_use' });
    const kept = decodeReply(encodeReply('m', EVENTS)!, 'msg_1').events;
    expect(kept.length).toBeLessThan(EVENTS.length);
    expect(whole(kept)).toEqual(whole(EVENTS));
  });

  test('one that the length cut has what was whole of it', () => {
    const events: AnswerEvent[] = [
      made(1, [{ index: 0, name: 'look', arguments: '{"at":"it","how":"clo' }], '', { finishReason: 'length' }),
      FINISH,
    ];
    expect(whole(events)).toMatchObject({ content: [{ name: 'look', input: { at: 'it' } }], stop_reason: 'max_tokens' });
  });
});
