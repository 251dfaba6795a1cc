/** Token events from the wire: what passes is whole, whatever is there. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodeEvents, encodeEvent, joinedEvents, readableEvents, type TokenEvent } from '../../shared/token-event.ts';

const head = { id: 'j', attempt: 1, seq: 0 };
const chance = { token: 'a', tokenId: 1, logprob: -0.5, bytes: [97] };
const usage = { promptTokens: 3, completionTokens: 1, cachedTokens: 0 };
const timings = { queueMs: 1, prefillMs: 1.5, ttftMs: 2, decodeTokensPerSecond: 0 };
const EVENTS: TokenEvent[] = [
  { ...head, type: 'accepted', promptTokens: 3 },
  { ...head, type: 'echo', prompt: 0, tokenCount: 1, text: 'a', tokens: [{ ...chance, logprob: null, top: [chance] }] },
  { ...head, type: 'delta', choice: 0, tokenIds: [1], text: 'a', logprobs: [{ ...chance, top: [chance] }], finishReason: 'stop' },
  { ...head, type: 'delta', choice: 7, tokenIds: [], text: '' },
  { ...head, type: 'delta', choice: 0, tokenIds: [1], text: '', reasoning: 'hm', calls: [{ index: 0, name: 'f', arguments: '{}' }] },
  { ...head, type: 'finish', usage, timings },
  { ...head, type: 'finish', usage: { ...usage, reasoningTokens: 1 }, timings },
  { ...head, type: 'error', code: 'generation_failed', message: 'm', param: 'p' },
];

describe('token events from the wire', () => {
  test('come back as they were sent, with what a later version added', () => {
    const events = EVENTS.map(event => ({ ...event, later: { on: true } }));
    expect(decodeEvents(joinedEvents(events.map(encodeEvent)))).toEqual(events);
  });

  test('of a type that is not known are left out', () => {
    expect(decodeEvents(JSON.stringify([{ ...head, type: 'later', value: 1 }, EVENTS[0]]))).toEqual([EVENTS[0]]);
  });

  test('with any one field of another type are refused, and not read beside whole ones', () => {
    const odd = fc.oneof(fc.constantFrom(null, -1, 1.5, 'x', '', true, [null], {}, [[]]), fc.jsonValue());
    fc.assert(
      fc.property(fc.constantFrom(...EVENTS), fc.nat(), odd, (event, at, value) => {
        const names = Object.keys(event);
        const damaged = { ...event, [names[at % names.length]!]: value } as TokenEvent;
        const entry = JSON.stringify([damaged, EVENTS[0]]);
        const readable = readableEvents(entry);
        expect(readable.at(-1)).toEqual(EVENTS[0]);
        // Either it is refused, or it is an event that says the same of itself again.
        for (const read of readable) expect(decodeEvents(JSON.stringify([read]))).toEqual([read]);
        if (
          readable.length === 1 &&
          typeof (damaged as { type: unknown }).type === 'string' &&
          damaged.type in { delta: 1, finish: 1, error: 1 }
        )
          expect(() => decodeEvents(entry)).toThrow('no list of token events');
      }),
      { numRuns: 500 },
    );
  });

  test.each(['', '{', 'null', '7', '{"type":"delta"}', '[null]', '[[]]', '["x"]'])('%j is none', text => {
    expect(readableEvents(text)).toEqual([]);
    expect(() => decodeEvents(text)).toThrow();
  });
});
