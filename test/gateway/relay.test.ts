/** Relay and OpenJob: whatever order, loss and repetition the live events suffer, each client gets each event once, in order, and one end. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ChatBody } from '../../gateway/chat-body.ts';
import { chatStream } from '../../gateway/chat-stream.ts';
import { MAX_LISTENERS, OpenJob } from '../../gateway/open-job.ts';
import { Relay } from '../../gateway/relay.ts';
import type { ReplyRecord } from '../../gateway/reply-record.ts';
import { ApiError } from '../../shared/errors.ts';
import type { TokenEvent } from '../../shared/token-event.ts';
import { chunksOf, parseSse, readSse, textOf } from './sse-client.ts';

const head = { id: 'chatcmpl-1', created: 1, model: 'm' };
const usage = { promptTokens: 3, completionTokens: 2, cachedTokens: 1 };
const timings = { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 };

const record: ReplyRecord = {
  ...{ id: 'j', tenant: 't', model: 'm', shard: 's', submittedAt: 0, promptCount: 1, choiceCount: 1, wantsLogprobs: false },
  ...{ promptTokensBound: 1, reply: { kind: 'chat', isStreamed: true, includeUsage: false }, isSureToFit: true, isResumable: false },
  ...{ serviceClass: 'default', weight: 1, expectedTokens: 1, token: 'x', reservation: 'j', reservedPromptTokens: 0 },
} as const;

interface OpenOptions {
  isSureToFit?: boolean;
  maxBufferedBytes?: number;
  isStreamed?: boolean;
  seenSeq?: number;
}

function listen(options: OpenOptions = {}) {
  const gone: string[] = [];
  const relay = new Relay({
    writer:
      options.isStreamed === false
        ? new ChatBody({ head, choiceCount: 1, wantsLogprobs: false })
        : chatStream({ head, choiceCount: 1, includeUsage: false }),
    isSureToFit: options.isSureToFit ?? true,
    maxBufferedBytes: options.maxBufferedBytes ?? 1_000_000,
    seenSeq: options.seenSeq ?? -1,
    onGone: why => gone.push(why),
    now: 0,
  });
  return { relay, gone };
}

/** A job with one client from its start. */
function open(options: OpenOptions = {}) {
  const job = new OpenJob(record, 0);
  const { relay, gone } = listen(options);
  job.join(relay, { isBehind: false, now: 0 });
  return { job, relay, gone };
}

function script(pieces: readonly string[], attempt = 1): TokenEvent[] {
  const events: TokenEvent[] = [{ type: 'accepted', id: 'j', attempt, seq: 0, promptTokens: 3 }];
  for (const [index, text] of pieces.entries()) {
    const isLast = index === pieces.length - 1;
    events.push({
      type: 'delta',
      id: 'j',
      attempt,
      seq: index + 1,
      choice: 0,
      tokenIds: [1],
      text,
      ...(isLast && { finishReason: 'stop' as const }),
    });
  }
  events.push({ type: 'finish', id: 'j', attempt, seq: pieces.length + 1, usage, timings });
  return events;
}

const isDecided = async (promise: Promise<unknown>) =>
  (await Promise.race([promise.then(() => true), new Promise(resolve => setTimeout(resolve, 5, false))])) as boolean;

const take = (relay: Relay, events: readonly TokenEvent[], now = 1) => {
  for (const event of events) relay.take(event, now);
  relay.flush(now);
};

test('any live order, with the record at hand, gives the whole text once, to everyone, whenever they came', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 12 }),
      fc.infiniteStream(fc.nat()),
      async (pieces, chance) => {
        const next = (below: number) => chance.next().value! % below;
        const { job, relay } = open();
        relay.begin(0);
        const events = script(pieces);
        const late: { relay: Relay; seenSeq: number }[] = [];
        const behind: Relay[] = [];
        for (let written = 1; written <= events.length; written++) {
          // One of those written so far, or a piece of an attempt that is over, or nothing.
          for (let times = next(3); times > 0; times--) {
            const event = next(4) === 0 ? { ...events[next(written)]!, attempt: 0, text: 'STALE' } : events[next(written)]!;
            if (event.attempt === 0 && job.order.nextSeq === 0) continue;
            const verdict = job.hear(event as TokenEvent, next(5_000));
            if (verdict === 'ask') job.learn(events.slice(job.order.nextSeq, written), written);
            job.flush(written);
          }
          if (next(3) === 0) {
            const seenSeq = next(written + 1) - 1;
            const joined = listen({ seenSeq }).relay;
            job.join(joined, { isBehind: true, now: written });
            late.push({ relay: joined, seenSeq });
            behind.push(joined);
          }
          // Reading the record takes a while.
          for (const joined of behind.splice(0, next(behind.length + 1))) {
            if (!job.fill(joined, events.slice(0, Math.max(0, written - next(2))), written)) behind.push(joined);
            else joined.begin(written);
          }
        }
        job.learn(events.slice(job.order.nextSeq), 9_999);
        for (const joined of behind) job.fill(joined, events, 9_999);
        job.flush(9_999);
        expect(job.order.phase).toBe('over');
        expect(job.order.isAnswered).toBe(true);
        expect(relay.phase).toBe('over');
        expect(textOf(chunksOf(await readSse(await relay.response)))).toBe(pieces.join(''));
        for (const { relay: joined, seenSeq } of late) {
          const response = await joined.response;
          if (seenSeq >= events.length - 1) {
            // The stream may have been opened before anyone knew that this was the end.
            if (response.status !== 204) expect(parseSse(await response.text()).events).toEqual([]);
            continue;
          }
          const unseen = pieces.slice(Math.max(0, seenSeq)).join('');
          expect(textOf(chunksOf(await readSse(response)))).toBe(unseen);
        }
      },
    ),
    { numRuns: 300 },
  );
});

describe('the head', () => {
  test('goes out when the job is queued, for a stream that is sure to fit', async () => {
    const { relay } = open();
    expect(await isDecided(relay.response)).toBe(false);
    relay.begin(0);
    expect(await isDecided(relay.response)).toBe(true);
  });

  test('waits for the first event of a stream that may not fit', async () => {
    const { relay } = open({ isSureToFit: false });
    relay.begin(0);
    relay.beat('queued', 5);
    expect(await isDecided(relay.response)).toBe(false);
    take(relay, script(['a']).slice(0, 1), 6);
    expect(await isDecided(relay.response)).toBe(true);
  });

  test('an error before it is an error to the caller', async () => {
    const { relay } = open({ isSureToFit: false });
    relay.begin(0);
    take(relay, [{ type: 'error', id: 'j', attempt: 1, seq: 0, code: 'context_length_exceeded', message: 'long', param: 'messages' }]);
    await expect(relay.response).rejects.toMatchObject({ code: 'context_length_exceeded', param: 'messages' });
  });

  test('a whole body’s goes out with its end, or with a heartbeat', async () => {
    const quick = open({ isStreamed: false }).relay;
    quick.begin(0);
    take(quick, script(['a', 'b']));
    const response = await quick.response;
    expect(response.headers.get('content-type')).toBe('application/json');
    expect(((await response.json()) as { choices: { message: unknown }[] }).choices[0]!.message).toEqual({
      role: 'assistant',
      content: 'ab',
      refusal: null,
    });

    const slow = open({ isStreamed: false }).relay;
    slow.begin(0);
    slow.beat('working', 1);
    slow.fail(new ApiError('generation_failed', 'no'), 2);
    await expect((await slow.response).text()).rejects.toThrow();
  });
});

describe('the end', () => {
  test('comes once, whatever follows', async () => {
    const { job, relay, gone } = open();
    relay.begin(0);
    for (const event of script(['a'])) job.hear(event, 1);
    job.flush(1);
    job.fail(new ApiError('generation_failed', 'late'), 2);
    relay.abandon();
    relay.beat('x', 3);
    job.learn(script(['a', 'b']), 4);
    expect(job.hear(script(['a'])[0]!, 5)).toBe('dropped');
    const stream = await readSse(await relay.response);
    expect(stream.events.filter(event => event.data === '[DONE]').length).toBe(1);
    expect(stream.text).not.toContain('error');
    expect(gone).toEqual([]);
  });

  test('a hole in the record is seen, not papered over', () => {
    const { job } = open();
    const events = script(['a', 'b', 'c']);
    expect(job.learn([events[0]!, events[1]!, events[3]!, events[4]!], 1)).toBe(false);
    expect(job.order.isAnswered).toBe(false);
  });

  test('a reader that leaves is told of once', async () => {
    const { relay, gone } = open();
    relay.begin(0);
    await (await relay.response).body!.cancel();
    relay.abandon();
    expect(gone).toEqual(['left']);
    expect(relay.phase).toBe('over');
  });

  test('a reader that is too slow is cut off past the bound, with the reason', async () => {
    const { relay, gone } = open({ maxBufferedBytes: 2_000 });
    relay.begin(0);
    for (const event of script(Array(30).fill('xxxxxxxxxxxxxxxxxxxx'))) take(relay, [event]);
    expect(gone).toEqual(['slow']);
    const { text, events } = parseSse(await (await relay.response).text());
    expect(text.length).toBeLessThan(4_000);
    expect(text).toContain('read too slowly');
    // Without an id of its own, so that who comes back goes on behind the last token.
    expect(Number(events.at(-1)!.id)).toBeLessThan(30);
  });

  test('one connection to a job too many pushes out the first', () => {
    const { job, gone } = open();
    for (let count = 0; count < MAX_LISTENERS; count++) job.join(listen().relay, { isBehind: true, now: 1 });
    expect(gone).toEqual(['replaced']);
  });
});

describe('a client that comes back', () => {
  const events = script(['a', 'b', 'c']);
  const failed: TokenEvent[] = [
    ...events.slice(0, 3),
    { type: 'error', id: 'j', attempt: 1, seq: 3, code: 'generation_failed', message: 'It broke.' },
  ];
  const back = async (seenSeq: number, record: readonly TokenEvent[]) => {
    const { relay } = listen({ seenSeq });
    take(relay, record);
    return await relay.response;
  };

  test('hears only what it has not, however much it claims to have', async () => {
    expect(textOf(chunksOf(await readSse(await back(2, events))))).toBe('c');
    expect(textOf(chunksOf(await readSse(await back(-1, events))))).toBe('abc');
    const chunks = chunksOf(await readSse(await back(3, events)));
    expect(chunks.map(chunk => chunk.choices[0]!.finish_reason)).toEqual(['stop']);
    expect((await back(4, events)).status).toBe(204);
    expect((await back(1_000_000, events)).status).toBe(204);
  });

  test('after an error: the rest of the text and the error, which has an id; then nothing more', async () => {
    const { events: seen } = await readSse(await back(1, failed));
    expect(JSON.parse(seen[0]!.data).choices[0].delta.content).toBe('b');
    expect(seen[1]).toMatchObject({ id: '3', data: expect.stringContaining('It broke.') });
    expect((await back(3, failed)).status).toBe(204);
  });
});
