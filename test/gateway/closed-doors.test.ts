/** ClosedDoors: what is repeated of a refusal, for how long, and who asks anew meanwhile. */
import { describe, expect, test } from 'vitest';
import { ClosedDoors } from '../../gateway/closed-doors.ts';

describe('a closed door', () => {
  const none = { limit: 1, remaining: 0, resetMs: 5_000 };
  const door = { standing: { requests: none, tokens: none }, message: 'full', opensAt: 5_100 };
  const caller = { tenant: 'acme', keyId: 'a' };

  test('is remembered for a moment, for its key only, and says what a refusal says', async () => {
    const doors = new ClosedDoors();
    doors.close(caller, door, 1_000);
    for (const [now, retryAfter] of [
      [1_099, '5'],
      [1_100, '4'],
      [1_110, '4'],
    ] as const) {
      const refusal = doors.refusal(caller, now)!;
      expect(refusal.status).toBe(429);
      expect(Object.fromEntries(refusal.headers)).toEqual({
        'content-type': 'application/json',
        'retry-after': retryAfter,
        'x-ratelimit-limit-requests': '1',
        'x-ratelimit-limit-tokens': '1',
        'x-ratelimit-remaining-requests': '0',
        'x-ratelimit-remaining-tokens': '0',
        'x-ratelimit-reset-requests': '5s',
        'x-ratelimit-reset-tokens': '5s',
        'x-sluice-error-code': 'rate_limit_exceeded',
      });
      expect(await refusal.json()).toEqual({
        error: { message: 'full', type: 'rate_limit_error', param: null, code: 'rate_limit_exceeded' },
      });
    }
    expect(doors.refusal({ ...caller, keyId: 'b' }, 1_100)).toBeUndefined();
    expect(doors.refusal({ ...caller, tenant: 'other' }, 1_100)).toBeUndefined();
    expect(doors.refusal(caller, 1_250)).toBeUndefined();
  });

  test('what a middleware changes in one refusal is not in the next', () => {
    const doors = new ClosedDoors();
    doors.close(caller, door, 1_000);
    const first = doors.refusal(caller, 1_001)!;
    first.headers.delete('x-sluice-error-code');
    first.headers.set('x-request-id', 'req_1');
    const { headers } = doors.refusal(caller, 1_002)!;
    expect([headers.get('x-sluice-error-code'), headers.get('x-request-id')]).toEqual(['rate_limit_exceeded', null]);
  });

  test('of a flood one request at a time asks again before the memory ends', () => {
    const doors = new ClosedDoors();
    doors.close(caller, door, 1_000);
    const asking = (now: number, count: number) => Array.from({ length: count }, () => doors.refusal(caller, now) === undefined);
    expect(asking(1_149, 3)).toEqual([false, false, false]);
    expect(asking(1_150, 3)).toEqual([true, false, false]);
    expect(asking(1_199, 2)).toEqual([false, false]);
    // That one was lost, or had something else to ask.
    expect(asking(1_200, 2)).toEqual([true, false]);
    expect(asking(1_249, 2)).toEqual([false, false]);
    expect(asking(1_250, 2)).toEqual([true, true]);
    // What it is told holds as long again.
    doors.close(caller, door, 1_000);
    expect(asking(1_160, 1)).toEqual([true]);
    doors.close(caller, door, 1_165);
    expect(asking(1_314, 2)).toEqual([false, false]);
    expect(asking(1_315, 2)).toEqual([true, false]);
  });

  test('only who would be refused is made to ask', () => {
    const doors = new ClosedDoors();
    doors.close(caller, { ...door, tokens: { room: 40, wanted: 100 } }, 1_000);
    expect(doors.refusal(caller, 1_160, 40)).toBeUndefined();
    expect(doors.refusal(caller, 1_160)).toBeUndefined();
    expect(doors.refusal(caller, 1_160, 50)).toBeUndefined();
    expect(doors.refusal(caller, 1_160, 50)).toBeDefined();
  });

  test('is open when its time has come, or when limits may have changed', () => {
    const doors = new ClosedDoors();
    doors.close(caller, door, 5_050);
    expect(doors.refusal(caller, 5_099)).toBeDefined();
    expect(doors.refusal(caller, 5_100)).toBeUndefined();
    doors.close(caller, door, 1_000);
    doors.openAll();
    expect(doors.refusal(caller, 1_001)).toBeUndefined();
  });

  test('lets on who asks for fewer tokens than are left, or for more than it can tell when they fit', () => {
    const doors = new ClosedDoors();
    doors.close(caller, { ...door, closedUntil: 1_120, tokens: { room: 40, wanted: 100 } }, 1_000);
    expect(doors.refusal(caller, 1_100, 40)).toBeUndefined();
    expect(doors.refusal(caller, 1_100, 41)?.headers.get('retry-after')).toBe('4');
    expect(doors.refusal(caller, 1_100, 100)).toBeDefined();
    expect(doors.refusal(caller, 1_100, 101)).toBeUndefined();
    // Before the body is read nothing is known.
    expect(doors.refusal(caller, 1_100)).toBeUndefined();
    // From here on more may be free.
    expect(doors.refusal(caller, 1_120, 100)).toBeUndefined();
  });

  test('is forgotten for another when there are too many', () => {
    const doors = new ClosedDoors();
    for (let i = 0; i <= 1_000; i++) doors.close({ tenant: `t${i}`, keyId: 'a' }, door, 1_000);
    expect(doors.refusal({ tenant: 't0', keyId: 'a' }, 1_000)).toBeUndefined();
    expect(doors.refusal({ tenant: 't1000', keyId: 'a' }, 1_000)).toBeDefined();
  });
});
