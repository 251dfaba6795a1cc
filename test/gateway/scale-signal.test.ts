import { describe, expect, test } from 'vitest';
import { HeldRequests, heldFor, summed } from '../../gateway/held-requests.ts';
import { KNEE_PATTERN, kneeOf, type ModelStanding, scaleSignal } from '../../gateway/scale-signal.ts';
import type { BatcherCard } from '../../shared/batcher-card.ts';

const NOW = 1_000_000;
const WISH = { targetShare: 0.8, queueMs: 10_000, knee: 2 };

function card(parts: Partial<BatcherCard> = {}): BatcherCard {
  return {
    ...{ version: 1, batcherId: 'b', model: 'm', contextTokens: 8_192, writtenAt: NOW, startedAt: 0, state: 'serving' },
    ...{ runningCount: 0, waitingCount: 0, maxRunningCount: 8, requestsPerSecond: 0, kvCapacityTokens: 1, kvUsedTokens: 0 },
    ...{ prefillTokensPerSecond: 1, decodeTokensPerSecond: 1, ...parts },
  };
}

const signal = (parts: Partial<ModelStanding>, wish: Partial<typeof WISH> | { knee: undefined } = {}) =>
  scaleSignal({ model: 'm', cards: [card()], queuedCount: 0, heldCount: 0, now: NOW, ...parts }, { ...WISH, ...wish });

describe('the desired number of batchers', () => {
  test.each([
    // 80 % of 2 a second each.
    [1.6, 1],
    [1.7, 2],
    [3.2, 2],
    [8, 5],
  ])('follows the rate: %d a second want %d', (requestsPerSecond, desiredCount) => {
    const cards = [card({ requestsPerSecond: requestsPerSecond / 2 }), card({ requestsPerSecond: requestsPerSecond / 2 })];
    expect(signal({ cards })).toMatchObject({ desiredCount, servingCount: 2, requestsPerSecond, kneeRatio: requestsPerSecond / 4 });
  });

  test('grows by what it takes to have the queue gone in time', () => {
    // 20 more in 10 s are one batcher at its knee.
    const cards = [card({ requestsPerSecond: 1.6, waitingCount: 4, runningCount: 8 })];
    expect(signal({ cards, queuedCount: 16 })).toMatchObject({ desiredCount: 2, waitingCount: 20, queueSeconds: 10 });
    expect(signal({ cards, queuedCount: 17 }).desiredCount).toBe(3);
  });

  test('is 0 when nobody has asked for some minutes, and 1 as soon as somebody waits, runs or is held', () => {
    expect(signal({ cards: [card({ requestsPerSecond: 0.0009 })] })).toMatchObject({ desiredCount: 0, requestsPerSecond: 0 });
    expect(signal({ cards: [card({ runningCount: 1 })] }).desiredCount).toBe(1);
    expect(signal({ cards: [], queuedCount: 1 })).toMatchObject({ desiredCount: 1, servingCount: 0, kneeRatio: undefined });
    expect(signal({ cards: [], heldCount: 1 }).desiredCount).toBe(1);
    expect(signal({ cards: [], heldCount: 41 }).desiredCount).toBe(3);
    // Whoever is held while a batcher serves waits for another model.
    expect(signal({ heldCount: 41 }).desiredCount).toBe(0);
  });

  test('counts neither batchers that drain or are gone, nor those of other models', () => {
    const others = [card({ state: 'draining' }), card({ writtenAt: NOW - 60_000 }), card({ model: 'other' })];
    expect(signal({ cards: [card({ requestsPerSecond: 1 }), ...others.map(one => ({ ...one, requestsPerSecond: 9 }))] })).toMatchObject({
      servingCount: 1,
      requestsPerSecond: 1,
    });
  });

  test('goes by rows where nobody has planned, and asks for one batcher where none has told of its rows', () => {
    const cards = [card({ runningCount: 8, waitingCount: 1 }), card({ runningCount: 7 })];
    expect(signal({ cards, queuedCount: 4 }, { knee: undefined })).toMatchObject({
      desiredCount: 4,
      knee: undefined,
      kneeRatio: undefined,
    });
    expect(signal({ cards: [], queuedCount: 100 }, { knee: undefined }).desiredCount).toBe(2);
    // A card of an older batcher has no rate.
    expect(signal({ cards: [card({ requestsPerSecond: undefined })] }).desiredCount).toBe(0);
  });
});

describe('SLUICE_KNEE', () => {
  test.each(['1', '0.98', '12.5', '00.25', 'm=0.5', 'org/m:q4=2,other=0.125'])('takes %s', text => expect(text).toMatch(KNEE_PATTERN));
  test.each(['', '0', '0.0', '-1', '1e3', 'm=0', 'm=1,other=0.00', 'm=', '=1', 'm=1,', '1,2', '1.', 'NaN'])('does not take %j', text =>
    expect(text).not.toMatch(KNEE_PATTERN),
  );
  test('holds for all models, or for those that it names', () => {
    expect(kneeOf('0.98', 'any')).toBe(0.98);
    expect(kneeOf('a=1,b=2.5', 'b')).toBe(2.5);
    expect(kneeOf('a=1,b=2.5', 'c')).toBeUndefined();
    expect(kneeOf(undefined, 'a')).toBeUndefined();
  });
});

describe('held requests', () => {
  test('are counted by name while they wait, however it ends', async () => {
    const held = new HeldRequests();
    const ends = Promise.withResolvers<void>();
    const both = [held.during('m', () => ends.promise), held.during('default', () => ends.promise)];
    expect([held.count, held.counts]).toEqual([2, { m: 1, default: 1 }]);
    ends.reject(new Error('the client left'));
    await Promise.allSettled(both);
    expect([held.count, held.counts]).toEqual([0, {}]);
  });

  test('of all brokers are added up, those without a name for the model that they may get', () => {
    const counts = summed([{ m: 1, default: 2 }, { m: 3 }, {}]);
    expect(counts).toEqual({ m: 4, default: 2 });
    expect(heldFor('m', counts, undefined)).toBe(6);
    expect(heldFor('m', counts, 'm')).toBe(6);
    expect(heldFor('m', counts, 'other')).toBe(4);
    expect(heldFor('default', counts, undefined)).toBe(2);
  });
});
