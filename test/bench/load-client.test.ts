import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { streamChat } from '../../bench/load-client.ts';
import { streamFigures } from '../../bench/stream-figures.ts';

const servers: http.Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

async function serve(handler: http.RequestListener) {
  const server = http.createServer(handler).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  return { baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, apiKey: 'k' };
}

const delta = (content: string, finish: string | null = null) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: finish }], usage: null })}\n\n`;
const USAGE = `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 5, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 4 } } })}\n\n`;
const DONE = 'data: [DONE]\n\n';

test('a good stream has text, one finish_reason, one [DONE], usage and no fault', async () => {
  const target = await serve((_, response) => response.end(`: queued\n\n${delta('')}${delta('ab')}${delta('c', 'stop')}${USAGE}${DONE}`));
  const outcome = await streamChat(target, { body: {} });
  expect(outcome).toMatchObject({ status: 200, text: 'abc', finishReasons: ['stop'], doneCount: 1, isCut: false, faults: [] });
  expect(outcome.usage).toEqual({ promptTokens: 5, completionTokens: 2, cachedTokens: 4 });
  expect(outcome.chunkTimes).toHaveLength(2);
});

test('each choice has its own text and finish_reason, and the batcher’s timings are kept', async () => {
  const chunk = (index: number, content: string, finish: string | null) =>
    `data: ${JSON.stringify({ choices: [{ index, delta: { content }, finish_reason: finish }], usage: null })}\n\n`;
  const end = `data: ${JSON.stringify({
    choices: [],
    usage: { prompt_tokens: 5, completion_tokens: 4 },
    timings: { queue_ms: 1, prefill_ms: 2, ttft_ms: 3, decode_tokens_per_second: 4 },
  })}\n\n`;
  const text = chunk(1, 'x', null) + chunk(0, 'a', null) + chunk(1, 'y', 'length') + chunk(0, 'b', 'stop') + end + DONE;
  const target = await serve((_, response) => response.end(text));
  const outcome = await streamChat(target, { body: { n: 2 } });
  expect(outcome).toMatchObject({ choiceTexts: ['ab', 'xy'], finishReasons: ['length', 'stop'], faults: [] });
  expect(outcome.timings).toEqual({ queueMs: 1, prefillMs: 2, ttftMs: 3 });
  expect((await streamChat(target, { body: {} })).faults).toEqual(['2 finish_reason']);
});

test.each([
  ['silent end', delta('a'), ['0 [DONE]', '0 finish_reason']],
  ['two ends', delta('a', 'stop') + delta('', 'stop') + DONE, ['2 finish_reason']],
  ['event after the end', delta('a', 'stop') + DONE + DONE, ['event after [DONE]: [DONE]', '2 [DONE]']],
  ['half an event', `${delta('a', 'stop')}${DONE}data: {"x`, ['ended inside an event: data: {"x']],
  [
    'an error event',
    `data: {"error":{"message":"gone","code":"generation_failed"}}\n\n${DONE}`,
    ['generation_failed: gone', '0 finish_reason'],
  ],
])('%s is a fault', async (_, body, faults) => {
  const target = await serve((_request, response) => response.end(body));
  expect((await streamChat(target, { body: {} })).faults).toEqual(faults);
});

test('a refusal is a fault with its status and message', async () => {
  const target = await serve((_, response) => response.writeHead(429).end('slow down'));
  expect(await streamChat(target, { body: {} })).toMatchObject({ status: 429, faults: ['status 429: slow down'] });
});

test('a server that cuts the connection is a fault, a client that leaves is not', async () => {
  const dropping = await serve((_, response) => response.write(delta('a'), () => response.destroy()));
  expect((await streamChat(dropping, { body: {} })).faults).toHaveLength(1);

  const leaving = new AbortController();
  const hanging = await serve((_, response) => response.write(delta('a'), () => leaving.abort()));
  expect(await streamChat(hanging, { body: {}, signal: leaving.signal })).toMatchObject({ isCut: true, faults: [] });
});

test('a silent server is a fault', async () => {
  const target = await serve(() => undefined);
  expect((await streamChat(target, { body: {}, silenceMs: 30 })).faults).toEqual(['nothing came for 30 ms']);
});

test('aggregate counts all tokens over the wall; all-running counts only while every stream runs', () => {
  const stream = (startedAt: number, chunkTimes: number[], completionTokens: number) => ({
    status: 200,
    startedAt,
    endedAt: chunkTimes.at(-1)!,
    chunkTimes,
    text: '',
    choiceTexts: [],
    finishReasons: ['length'],
    doneCount: 1,
    usage: { promptTokens: 10, completionTokens, cachedTokens: 0 },
    timings: undefined,
    isCut: false,
    faults: [],
  });
  // The second brings two tokens a chunk.
  const figures = streamFigures([stream(0, [1000, 2000, 3000, 4000], 4), stream(0, [2000, 3000, 4000, 5000], 8)]);
  expect(figures.aggregateTokensPerSecond).toBeCloseTo(12 / 5);
  expect(figures.allRunningAggregateTokensPerSecond).toBeCloseTo((2 + 4) / 2);
  expect(figures.perRequestTokensPerSecondP50).toBeCloseTo((3 / 3 + 7 / 3) / 2);
  expect(figures.ttftMsP50).toBe(1500);
});
