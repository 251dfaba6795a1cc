import { expect, test } from 'vitest';
import { MessageStream } from '../../../gateway/messages/message-stream.ts';
import { ApiError } from '../../../shared/errors.ts';
import type { AnswerEvent } from '../../../shared/token-event.ts';
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
