/** ResponseStream: items one after the other, numbered the same whenever they are told, and the same as the whole response. */
import { describe, expect, test } from 'vitest';
import type { ResponseHead, ResponseOut } from '../../../gateway/responses/response-object.ts';
import { ResponseStream } from '../../../gateway/responses/response-stream.ts';
import { ResponseWriter } from '../../../gateway/responses/response-writer.ts';
import type { AnswerEvent, CallDelta } from '../../../shared/token-event.ts';
import { parseSse } from '../sse-client.ts';

const HEAD: ResponseHead = {
  ...{ id: 'resp_ab1', created: 7, model: 'm', isBackground: false, isStored: true },
  echo: {
    ...{ instructions: null, max_output_tokens: null, metadata: {}, parallel_tool_calls: true, service_tier: 'default', temperature: 1 },
    ...{ tool_choice: 'auto', top_p: 1, user: null },
  },
};
const head = (seq: number) => ({ id: HEAD.id, attempt: 1, seq });
const delta = (seq: number, text: string, calls?: CallDelta[], more: object = {}): AnswerEvent => ({
  ...{ type: 'delta', choice: 0, tokenIds: [1], text, ...head(seq), ...(calls && { calls }), ...more },
});
const finish = (seq: number): AnswerEvent => ({
  ...{ type: 'finish', usage: { promptTokens: 9, cachedTokens: 4, completionTokens: 2 }, ...head(seq) },
  timings: { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 },
});
const ACCEPTED: AnswerEvent = { type: 'accepted', promptTokens: 9, ...head(0) };

// biome-ignore lint/suspicious/noExplicitAny: events of many kinds
type Told = any;
const told = (events: AnswerEvent[], startingAfter?: number): Told[] => {
  const stream = new ResponseStream(HEAD, startingAfter);
  return parseSse(events.map(event => stream.write(event)).join('')).events.map(({ data }) => JSON.parse(data));
};
const whole = (events: AnswerEvent[]): ResponseOut => {
  const body = new ResponseWriter(HEAD);
  return JSON.parse(events.map(event => body.write(event)).join(''));
};
const types = (events: Told[]) => events.map(({ type }) => type.replace('response.', ''));

describe('calls', () => {
  const EVENTS = [
    ACCEPTED,
    delta(1, 'I look.'),
    delta(2, '', [{ index: 0, name: 'look', arguments: '' }]),
    delta(3, '', [{ index: 0, arguments: '{"at":"' }]),
    // The rest of a call, text, and the next call, in one step.
    delta(4, 'So.', [
      { index: 0, arguments: 'é"}' },
      { index: 1, name: 'end', arguments: '{}' },
    ]),
    delta(5, '', undefined, { finishReason: 'tool_calls' }),
    finish(6),
  ];
  const OUTPUT = [
    { id: 'msg_ab1', type: 'message', status: 'completed', role: 'assistant', content: [{ text: 'I look.' }] },
    { id: 'fc_ab1_0', type: 'function_call', status: 'completed', call_id: 'call_respab10000', name: 'look', arguments: '{"at":"é"}' },
    { id: 'msg_ab1_2', type: 'message', status: 'completed', role: 'assistant', content: [{ text: 'So.' }] },
    { id: 'fc_ab1_1', type: 'function_call', status: 'completed', call_id: 'call_respab10001', name: 'end', arguments: '{}' },
  ];

  test('an item each, added, told in pieces and done before the next', () => {
    const events = told(EVENTS);
    const message = ['output_item.added', 'content_part.added', 'output_text.delta'];
    const messageEnd = ['output_text.done', 'content_part.done', 'output_item.done'];
    const callEnd = ['function_call_arguments.done', 'output_item.done'];
    expect(types(events)).toEqual([
      ...['created', 'in_progress', ...message, ...messageEnd],
      ...['output_item.added', 'function_call_arguments.delta', 'function_call_arguments.delta', ...callEnd],
      ...[...message, ...messageEnd],
      ...['output_item.added', 'function_call_arguments.delta', ...callEnd, 'completed'],
    ]);
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual([...events.keys()]);
    expect(events[8]).toMatchObject({ output_index: 1, item: { ...OUTPUT[1], status: 'in_progress', arguments: '' } });
    expect(events[9]).toMatchObject({ item_id: 'fc_ab1_0', output_index: 1, delta: '{"at":"' });
    expect(events[11]).toMatchObject({ item_id: 'fc_ab1_0', output_index: 1, name: 'look', arguments: '{"at":"é"}' });
    const done = events.filter(({ type }) => type === 'response.output_item.done');
    expect(done.map(({ output_index }) => output_index)).toEqual([0, 1, 2, 3]);
    expect(done.map(({ item }) => item)).toEqual(events.at(-1).response.output);
  });

  test('whole they are the same, and from any event on', () => {
    expect(whole(EVENTS)).toMatchObject({ status: 'completed', output: OUTPUT });
    const events = told(EVENTS);
    expect(events.at(-1).response).toEqual(whole(EVENTS));
    for (const { sequence_number: seen } of events) expect(told(EVENTS, seen)).toEqual(events.slice(seen + 1));
  });

  test('one that the length cut is incomplete, those before it are not', () => {
    const cut = [...EVENTS.slice(0, 4), delta(4, '', undefined, { finishReason: 'length' }), finish(5)];
    const response = whole(cut);
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    expect(response.output.map(({ status }) => status)).toEqual(['completed', 'incomplete']);
    expect(response.output[1]).toMatchObject({ arguments: '{"at":"' });
    expect(told(cut).at(-1).response).toEqual(response);
    expect(told(cut).at(-2)).toMatchObject({ type: 'response.output_item.done', item: { status: 'incomplete' } });
  });

  test('alone: no message beside them', () => {
    const alone = [ACCEPTED, delta(1, '', [{ index: 0, name: 'end', arguments: '{}' }]), finish(2)];
    expect(whole(alone).output.map(({ type }) => type)).toEqual(['function_call']);
    expect(types(told(alone))).not.toContain('content_part.added');
  });
});

test('an answer that says nothing is a message without text', () => {
  const events = [ACCEPTED, delta(1, '', undefined, { finishReason: 'stop' }), finish(2)];
  expect(whole(events).output).toMatchObject([{ type: 'message', status: 'completed', content: [{ text: '' }] }]);
  expect(types(told(events))).toEqual([
    ...['created', 'in_progress', 'output_item.added', 'content_part.added'],
    ...['output_text.done', 'content_part.done', 'output_item.done', 'completed'],
  ]);
});
