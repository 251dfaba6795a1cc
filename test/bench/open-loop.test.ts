import { expect, test } from 'vitest';
import type { StreamOutcome } from '../../bench/load-client.ts';
import { sendOpenLoop } from '../../bench/open-loop.ts';

const outcome = (values: Partial<StreamOutcome> = {}): StreamOutcome => ({
  ...{ status: 200, startedAt: performance.now(), endedAt: performance.now(), text: 'x', choiceTexts: ['x'], finishReasons: ['length'] },
  ...{ chunkTimes: [performance.now()], doneCount: 1, timings: undefined, isCut: false, faults: [] },
  usage: { promptTokens: 12, completionTokens: 3, cachedTokens: 4 },
  ...values,
});
const arrivals = (count: number) => Array.from({ length: count }, (_, index) => ({ atMs: index, promptTokens: 10 }));
const options = { clientsBound: 0, drainMs: 0 };

test('nobody waits for an answer: all are sent while none has been answered', async () => {
  const answers: (() => void)[] = [];
  const { requests } = await sendOpenLoop(arrivals(5), {
    ...options,
    drainMs: 600_000,
    send: () => {
      const answer = new Promise<StreamOutcome>(resolve => answers.push(() => resolve(outcome())));
      if (answers.length === 5) for (const give of answers) give();
      return answer;
    },
  });
  expect(requests.map(request => request.outcome)).toEqual(Array(5).fill('whole'));
});

test('what the server counts goes before what was planned; gaps are those of one stream', async () => {
  const { requests, gaps } = await sendOpenLoop(arrivals(1), {
    ...options,
    send: async () => {
      const startedAt = performance.now();
      return outcome({ startedAt, chunkTimes: [startedAt + 50, startedAt + 60, startedAt + 90] });
    },
  });
  expect(requests[0]).toMatchObject({ promptTokens: 12, cachedTokens: 4, completionTokens: 3, outcome: 'whole' });
  expect(requests[0]!.firstTokenAt! - requests[0]!.arrivedAt).toBeCloseTo(50);
  expect(requests[0]!.lastTokenAt! - requests[0]!.arrivedAt).toBeCloseTo(90);
  expect([gaps.count, gaps.sumMs]).toEqual([2, expect.closeTo(40)]);
});

test.each([
  ['refused', { status: 429, faults: ['status 429'] }],
  ['refused', { status: 503, faults: ['status 503'] }],
  ['broken', { status: 500, faults: ['status 500'] }],
  ['broken', { faults: ['ended inside an event'] }],
  ['broken', { usage: undefined }],
  ['unfinished', { isCut: true }],
] as const)('%s: %j', async (name, values) => {
  const { requests } = await sendOpenLoop(arrivals(1), {
    ...options,
    send: async () => outcome({ ...values, faults: [...('faults' in values ? values.faults : [])] }),
  });
  expect(requests[0]).toMatchObject({ outcome: name, promptTokens: 10, firstTokenAt: undefined });
});

test('what is open too long after the last arrival is cut', async () => {
  const { requests } = await sendOpenLoop(arrivals(3), {
    ...options,
    send: (_, signal) => new Promise(resolve => signal.addEventListener('abort', () => resolve(outcome({ isCut: true })))),
  });
  expect(requests.map(request => request.outcome)).toEqual(['unfinished', 'unfinished', 'unfinished']);
});

test('past the bound nothing is sent', async () => {
  let sentCount = 0;
  const { requests } = await sendOpenLoop(arrivals(4), {
    clientsBound: 2,
    drainMs: 0,
    send: (_, signal) => {
      sentCount++;
      return new Promise(resolve => signal.addEventListener('abort', () => resolve(outcome({ isCut: true }))));
    },
  });
  expect(sentCount).toBe(2);
  expect(requests.map(request => request.outcome)).toEqual(['unfinished', 'unfinished', 'unsent', 'unsent']);
});
