/** Relay: whatever order, loss and repetition the live events suffer, the client gets each event once, in order, and one end. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ChatBody } from '../../gateway/chat-body.ts';
import { ChatStream } from '../../gateway/chat-stream.ts';
import { Relay } from '../../gateway/relay.ts';
import { ApiError } from '../../shared/errors.ts';
import type { TokenEvent } from '../../shared/token-event.ts';
import { chunksOf, parseSse, readSse, textOf } from './sse-client.ts';

const head = { id: 'chatcmpl-1', created: 1, model: 'm' };
const usage = { promptTokens: 3, completionTokens: 2, cachedTokens: 1 };
const timings = { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 };

function open(options: { isSureToFit?: boolean; maxBufferedBytes?: number; isStreamed?: boolean } = {}) {
  const gone: string[] = [];
  const relay = new Relay({
    writer:
      options.isStreamed === false
        ? new ChatBody({ head, choiceCount: 1, wantsLogprobs: false })
        : new ChatStream({ head, choiceCount: 1, includeUsage: false }),
    isSureToFit: options.isSureToFit ?? true,
    maxBufferedBytes: options.maxBufferedBytes ?? 1_000_000,
    onAbandoned: why => gone.push(why),
    now: 0,
  });
  return { relay, gone };
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

test('any live order, with the record at hand, gives the whole text once', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 12 }),
      fc.infiniteStream(fc.nat()),
      async (pieces, chance) => {
        const next = (below: number) => chance.next().value! % below;
        const { relay } = open();
        relay.queued(0);
        const record = script(pieces);
        for (let written = 1; written <= record.length; written++) {
          // One of those written so far, or a piece of an attempt that is over, or nothing.
          for (let times = next(3); times > 0; times--) {
            const event = next(4) === 0 ? { ...record[next(written)]!, attempt: 0, text: 'STALE' } : record[next(written)]!;
            if (event.attempt === 0 && relay.nextSeq === 0) continue;
            if (relay.hear(event as TokenEvent, next(5_000)) === 'ask') relay.learn(record.slice(relay.nextSeq, written), written);
            relay.flush(written);
          }
        }
        relay.learn(record.slice(relay.nextSeq), 9_999);
        relay.flush(9_999);
        expect(relay.phase).toBe('over');
        const stream = await readSse(await relay.response);
        expect(textOf(chunksOf(stream))).toBe(pieces.join(''));
      },
    ),
    { numRuns: 200 },
  );
});

describe('the head', () => {
  test('goes out when the job is queued, for a stream that is sure to fit', async () => {
    const { relay } = open();
    expect(await isDecided(relay.response)).toBe(false);
    relay.queued(0);
    expect(await isDecided(relay.response)).toBe(true);
  });

  test('waits for the first event of a stream that may not fit', async () => {
    const { relay } = open({ isSureToFit: false });
    relay.queued(0);
    relay.beat('queued', 5);
    expect(await isDecided(relay.response)).toBe(false);
    relay.hear(script(['a'])[0]!, 6);
    relay.flush(6);
    expect(await isDecided(relay.response)).toBe(true);
  });

  test('an error before it is an error to the caller', async () => {
    const { relay } = open({ isSureToFit: false });
    relay.queued(0);
    relay.hear({ type: 'error', id: 'j', attempt: 1, seq: 0, code: 'context_length_exceeded', message: 'long', param: 'messages' }, 1);
    await expect(relay.response).rejects.toMatchObject({ code: 'context_length_exceeded', param: 'messages' });
  });

  test('a whole body’s goes out with its end, or with a heartbeat', async () => {
    const quick = open({ isStreamed: false }).relay;
    quick.queued(0);
    for (const event of script(['a', 'b'])) quick.hear(event, 1);
    const response = await quick.response;
    expect(response.headers.get('content-type')).toBe('application/json');
    expect(((await response.json()) as { choices: { message: unknown }[] }).choices[0]!.message).toEqual({
      role: 'assistant',
      content: 'ab',
      refusal: null,
    });

    const slow = open({ isStreamed: false }).relay;
    slow.queued(0);
    slow.beat('working', 1);
    slow.fail(new ApiError('generation_failed', 'no'), 2);
    await expect((await slow.response).text()).rejects.toThrow();
  });
});

describe('the end', () => {
  test('comes once, whatever follows', async () => {
    const { relay, gone } = open();
    relay.queued(0);
    for (const event of script(['a'])) relay.hear(event, 1);
    relay.flush(1);
    relay.fail(new ApiError('generation_failed', 'late'), 2);
    relay.abandon();
    relay.beat('x', 3);
    relay.learn(script(['a', 'b']), 4);
    expect(relay.hear(script(['a'])[0]!, 5)).toBe('dropped');
    const stream = await readSse(await relay.response);
    expect(stream.events.filter(event => event.data === '[DONE]').length).toBe(1);
    expect(stream.text).not.toContain('error');
    expect(gone).toEqual([]);
  });

  test('a hole in the record is an error, not a shorter text', async () => {
    const { relay } = open();
    relay.queued(0);
    const events = script(['a', 'b', 'c']);
    relay.learn([events[0]!, events[1]!, events[3]!, events[4]!], 1);
    const stream = parseSse(await (await relay.response).text());
    expect(JSON.parse(stream.events.at(-1)!.data).error.code).toBe('generation_failed');
  });

  test('a reader that leaves is told of once', async () => {
    const { relay, gone } = open();
    relay.queued(0);
    await (await relay.response).body!.cancel();
    relay.abandon();
    expect(gone).toEqual(['left']);
    expect(relay.phase).toBe('over');
  });

  test('a reader that is too slow is cut off past the bound, with the reason', async () => {
    const { relay, gone } = open({ maxBufferedBytes: 2_000 });
    relay.queued(0);
    for (const event of script(Array(30).fill('xxxxxxxxxxxxxxxxxxxx'))) {
      relay.hear(event, 1);
      relay.flush(1);
    }
    expect(gone).toEqual(['slow']);
    const { text } = parseSse(await (await relay.response).text());
    expect(text.length).toBeLessThan(4_000);
    expect(text).toContain('read too slowly');
  });
});
