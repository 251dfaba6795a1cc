/** Account: no sequence of requests gets more than the limits through, a refused one costs nothing, the first is never refused. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Account, type Request, type Used } from '../../../gateway/tenant/account.ts';
import { limitRefusal } from '../../../gateway/tenant/limit-refusal.ts';
import { CEILING, type Limits } from '../../../gateway/tenant/limits.ts';
import { DAY_MS } from '../../../gateway/tenant/meter.ts';
import { WINDOW_MS } from '../../../gateway/tenant/sliding-window.ts';

const NOON = Date.UTC(2026, 0, 15, 12);

function account(limits: Limits, keys: Record<string, Limits> = {}): Account {
  return new Account({ limits, limitsOfKey: id => keys[id] ?? {}, leaseMs: 60_000, defaultMaxTokens: 500 });
}

let count = 0;
function request(more: Partial<Request> = {}): Request {
  return { id: `job-${count++}`, keyId: 'a', promptTokens: 10, maxTokens: 90, minTokens: 0, choiceCount: 1, ...more };
}

const used = (tokens: number): Used => ({ promptTokens: 10, cachedTokens: 0, completionTokens: tokens - 10 });

describe('background requests leave half of each limit to the others', () => {
  const background = (more: Partial<Request> = {}) => request({ isBackground: true, ...more });

  test.each<[string, Limits]>([
    ['requests per minute', { requestsPerMinute: 4 }],
    ['tokens per minute', { tokensPerMinute: 400 }],
    ['concurrent requests', { concurrentRequests: 4 }],
  ])('%s', (unit, limits) => {
    const one = account(limits);
    const outcomes = [background(), background(), background(), request(), request(), request()].map(each => one.admit(each, NOON));
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(['admitted', 'admitted', 'refused', 'admitted', 'admitted', 'refused']);
    expect(outcomes[2]).toMatchObject({ shortage: { unit, retryAt: expect.any(Number) } });
  });

  test('what is larger than the half, or alone, gets in all the same', () => {
    const one = account({ requestsPerMinute: 1, tokensPerMinute: 120, concurrentRequests: 1 });
    const first = background();
    expect(one.admit(first, NOON).outcome).toBe('admitted');
    one.settle(first.id, used(20), NOON);
    expect(one.admit(background(), NOON + 1)).toMatchObject({ outcome: 'refused' });
    expect(one.admit(background(), NOON + 2 * WINDOW_MS).outcome).toBe('admitted');
  });

  test('a day is theirs as it is anybody’s', () => {
    const one = account({ tokensPerDay: 200 });
    expect([one.admit(background(), NOON), one.admit(background(), NOON)].map(({ outcome }) => outcome)).toEqual(['admitted', 'admitted']);
  });
});

describe('each limit', () => {
  test('requests per minute', () => {
    const one = account({ requestsPerMinute: 2 });
    expect(one.admit(request(), NOON).outcome).toBe('admitted');
    expect(one.admit(request(), NOON).outcome).toBe('admitted');
    const refused = one.admit(request(), NOON + 500);
    expect(refused).toMatchObject({
      outcome: 'refused',
      whose: 'tenant',
      shortage: { unit: 'requests per minute', limit: 2, usedCount: 2 },
    });
    expect(one.standing('a', NOON + 500).requests).toMatchObject({ limit: 2, remaining: 0 });
  });

  test('tokens per minute: reserved in full, refunded at the end', () => {
    const one = account({ tokensPerMinute: 150 });
    const first = request();
    expect(one.admit(first, NOON).outcome).toBe('admitted');
    expect(one.standing('a', NOON).tokens).toMatchObject({ limit: 150, remaining: 50 });
    expect(one.admit(request(), NOON)).toMatchObject({ outcome: 'refused', shortage: { unit: 'tokens per minute', wantedCount: 100 } });
    one.settle(first.id, used(40), NOON + 100);
    expect(one.standing('a', NOON + 100).tokens.remaining).toBe(110);
    expect(one.admit(request(), NOON + 100).outcome).toBe('admitted');
  });

  test('tokens per day, until midnight in UTC', () => {
    const one = account({ tokensPerDay: 150 });
    const first = request();
    one.admit(first, NOON);
    one.settle(first.id, used(100), NOON);
    const refused = one.admit(request(), NOON + 2 * WINDOW_MS);
    expect(refused).toMatchObject({ outcome: 'refused', shortage: { unit: 'tokens per day', retryAt: NOON + DAY_MS / 2 } });
    expect(one.admit(request(), NOON + DAY_MS / 2).outcome).toBe('admitted');
  });

  test('concurrent requests', () => {
    const one = account({ concurrentRequests: 1 });
    const first = request();
    one.admit(first, NOON);
    expect(one.admit(request(), NOON)).toMatchObject({ outcome: 'refused', shortage: { unit: 'concurrent requests' } });
    one.settle(first.id, used(20), NOON + 1);
    expect(one.admit(request(), NOON + 1).outcome).toBe('admitted');
  });

  test('a key has its own, within its tenant’s', () => {
    const one = account({ requestsPerMinute: 3 }, { a: { requestsPerMinute: 1 } });
    expect(one.admit(request(), NOON).outcome).toBe('admitted');
    expect(one.admit(request(), NOON)).toMatchObject({ outcome: 'refused', whose: 'key' });
    expect(one.admit(request({ keyId: 'b' }), NOON).outcome).toBe('admitted');
    expect(one.admit(request({ keyId: 'b' }), NOON).outcome).toBe('admitted');
    expect(one.admit(request({ keyId: 'b' }), NOON)).toMatchObject({ outcome: 'refused', whose: 'tenant' });
  });

  test('none set: counted, up to the ceiling', () => {
    const one = account({});
    one.admit(request(), NOON);
    expect(one.standing('a', NOON)).toMatchObject({
      requests: { limit: CEILING, remaining: CEILING - 1 },
      tokens: { limit: CEILING, remaining: CEILING - 100 },
    });
  });
});

describe('a single request', () => {
  test('of exactly the limit is let in', () => {
    expect(
      account({ tokensPerMinute: 100, tokensPerDay: 100, requestsPerMinute: 1, concurrentRequests: 1 }).admit(request(), NOON).outcome,
    ).toBe('admitted');
  });

  test('of more than the limit is told that it never will be', () => {
    const refused = account({ tokensPerMinute: 99 }).admit(request(), NOON);
    if (refused.outcome !== 'refused') throw new Error('let in');
    const error = limitRefusal(refused, NOON);
    expect(error).toMatchObject({ code: 'request_exceeds_limit', status: 400, retryAfterSeconds: undefined });
    expect(error.message).toMatch(/up to 100 tokens.*99 tokens per minute.*never/);
  });

  test('without max_tokens is let in under any limit that its prompt leaves room in, and bounded by it', () => {
    const admitted = account({ tokensPerMinute: 100 }).admit(request({ maxTokens: undefined, choiceCount: 3 }), NOON);
    expect(admitted).toMatchObject({ outcome: 'admitted', maxTokens: 30, lease: { reservedTokens: 100 } });
    expect(account({}).admit(request({ maxTokens: undefined }), NOON)).toMatchObject({ outcome: 'admitted', maxTokens: undefined });
    expect(account({ tokensPerMinute: 10 }).admit(request({ maxTokens: undefined }), NOON).outcome).toBe('refused');
  });

  test('whose prompt was estimated too short gets the rest while there is room', () => {
    const one = account({ tokensPerMinute: 150 });
    const first = request();
    one.admit(first, NOON);
    expect(one.extend(first.id, 60, NOON)).toMatchObject({ outcome: 'extended', lease: { promptTokens: 60, reservedTokens: 150 } });
    expect(one.extend(first.id, 60, NOON)).toMatchObject({ outcome: 'extended', lease: { reservedTokens: 150 } });
    const refused = one.extend(first.id, 61, NOON);
    expect(refused).toMatchObject({ outcome: 'refused', shortage: { wantedCount: 151, retryAt: undefined } });
    expect(one.standing('a', NOON).tokens.remaining).toBe(0);
    expect(one.extend('nobody', 61, NOON)).toBeUndefined();
  });

  test('twice under one id is one', () => {
    const one = account({ concurrentRequests: 1 });
    const twice = request();
    expect(one.admit(twice, NOON).outcome).toBe('admitted');
    expect(one.admit(twice, NOON).outcome).toBe('admitted');
    expect(one.openCount).toBe(1);
    one.settle(twice.id, used(10), NOON);
    expect(one.settle(twice.id, used(10), NOON)).toBeUndefined();
    one.check();
  });
});

test('refused after all: as if it had never been', () => {
  const one = account({ requestsPerMinute: 1, tokensPerMinute: 100, tokensPerDay: 100, concurrentRequests: 1 });
  const before = one.standing('a', NOON);
  for (let i = 0; i < 5; i++) {
    const doomed = request();
    expect(one.admit(doomed, NOON).outcome).toBe('admitted');
    expect(one.settle(doomed.id, undefined, NOON + 10)).toMatchObject({ used: undefined });
    expect(one.standing('a', NOON + 10)).toEqual(before);
  }
});

test('a lease whose broker is silent ends at what was last known', () => {
  const one = account({ concurrentRequests: 2 });
  const silent = request();
  const alive = request();
  one.admit(silent, NOON);
  one.admit(alive, NOON);
  one.renew(silent.id, used(25), NOON + 1_000);
  one.renew(alive.id, used(30), NOON + 30_000);
  expect(one.expire(NOON + 60_999)).toEqual([]);
  expect(one.expire(NOON + 61_000)).toMatchObject([{ lease: { id: silent.id }, used: used(25) }]);
  expect(one.openCount).toBe(1);
  expect(one.renew(silent.id, used(26), NOON + 61_000)).toBe(false);
  one.check();
});

test('a clock that goes back frees nothing early', () => {
  const one = account({ requestsPerMinute: 1 });
  one.admit(request(), NOON);
  expect(one.admit(request(), NOON - 10 * WINDOW_MS).outcome).toBe('refused');
  one.check();
});

test('200 at once against 1,000 tokens a minute, again and again: never more than that in any minute', () => {
  const limit = 1_000;
  const wave = fc.record({
    pauseMs: fc.oneof(fc.nat(1_500), fc.nat(70_000)),
    size: fc.integer({ min: 1, max: 200 }),
    promptTokens: fc.integer({ min: 1, max: 120 }),
    maxTokens: fc.integer({ min: 1, max: 200 }),
    usedShare: fc.double({ min: 0, max: 1, noNaN: true }),
    lastsMs: fc.nat(80_000),
    refusedEvery: fc.integer({ min: 2, max: 9 }),
  });
  fc.assert(
    fc.property(fc.array(wave, { minLength: 1, maxLength: 12 }), waves => {
      const one = account({ tokensPerMinute: limit });
      const let_in: { at: number; tokens: number }[] = [];
      let open: { id: string; endsAt: number; due: Used | undefined; entry: { tokens: number } }[] = [];
      let now = NOON;
      let isFirst = true;
      for (const { pauseMs, size, promptTokens, maxTokens, usedShare, lastsMs, refusedEvery } of waves) {
        now += pauseMs;
        for (const { id, due, entry } of open.filter(each => each.endsAt <= now)) {
          one.settle(id, due, now);
          entry.tokens = due === undefined ? 0 : due.promptTokens + due.completionTokens;
        }
        open = open.filter(each => each.endsAt > now);
        for (let i = 0; i < size; i++) {
          const asked = request({ promptTokens, maxTokens });
          const before = one.standing('a', now);
          const admission = one.admit(asked, now);
          if (admission.outcome === 'refused') {
            expect(isFirst).toBe(false);
            expect(one.standing('a', now)).toEqual(before);
            expect(limitRefusal(admission, now).retryAfterSeconds).toBeGreaterThanOrEqual(1);
          } else {
            const entry = { at: now, tokens: promptTokens + maxTokens };
            const completionTokens = Math.floor(maxTokens * usedShare);
            let_in.push(entry);
            const due = i % refusedEvery === 0 ? undefined : { promptTokens, cachedTokens: 0, completionTokens };
            open.push({ id: asked.id, endsAt: now + lastsMs + 1, due, entry });
          }
          isFirst = false;
          const after = one.standing('a', now);
          expect(Math.min(after.tokens.remaining, after.requests.remaining)).toBeGreaterThanOrEqual(0);
        }
        one.check();
        const inLastMinute = let_in.filter(({ at }) => at > now - WINDOW_MS).reduce((sum, { tokens }) => sum + tokens, 0);
        expect(inLastMinute).toBeLessThanOrEqual(limit);
      }
    }),
    { numRuns: 25 },
  );
});

test('Retry-After is honest: who comes back then, alone, is let in', () => {
  const step = fc.record({ pauseMs: fc.nat(20_000), tokens: fc.integer({ min: 11, max: 900 }) });
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 40 }), steps => {
      const one = account({ tokensPerMinute: 1_000, requestsPerMinute: 5 });
      let now = NOON;
      for (const { pauseMs, tokens } of steps) {
        now += pauseMs;
        const asked = request({ maxTokens: tokens });
        const admission = one.admit(asked, now);
        if (admission.outcome === 'refused') {
          now += limitRefusal(admission, now).retryAfterSeconds! * 1000;
          expect(one.admit(asked, now).outcome).toBe('admitted');
        }
        one.settle(asked.id, used(tokens), now);
      }
    }),
  );
});
