/** Metered: how the headers say a time, and how long a closed door stays closed. */
import { describe, expect, test } from 'vitest';
import { ClosedDoors } from '../../gateway/closed-doors.ts';
import { duration } from '../../gateway/limit-headers.ts';
import { estimatePromptTokens } from '../../gateway/token-estimate.ts';

test.each([
  [0, '0ms'],
  [999.4, '999ms'],
  [1_000, '1s'],
  [1_500, '1.5s'],
  [59_990, '59.99s'],
  [59_999, '1m0s'],
  [60_000, '1m0s'],
  [119_999, '2m0s'],
  [365_000, '6m5s'],
])('%d ms is %s', (ms, text) => {
  expect(duration(ms)).toBe(text);
});

describe('a closed door', () => {
  const none = { limit: 1, remaining: 0, resetMs: 5_000 };
  const door = { standing: { requests: none, tokens: none }, message: 'full', opensAt: 5_100 };
  const caller = { tenant: 'acme', keyId: 'a' };

  test('is remembered for a moment, for its key only', () => {
    const doors = new ClosedDoors();
    doors.close(caller, door, 1_000);
    expect(doors.find(caller, 1_100)?.error).toMatchObject({ code: 'rate_limit_exceeded', message: 'full', retryAfterSeconds: 4 });
    expect(doors.find({ ...caller, keyId: 'b' }, 1_100)).toBeUndefined();
    expect(doors.find({ ...caller, tenant: 'other' }, 1_100)).toBeUndefined();
    expect(doors.find(caller, 1_300)).toBeUndefined();
  });

  test('is open when its time has come, or when limits may have changed', () => {
    const doors = new ClosedDoors();
    doors.close(caller, door, 5_050);
    expect(doors.find(caller, 5_099)).toBeDefined();
    expect(doors.find(caller, 5_100)).toBeUndefined();
    doors.close(caller, door, 1_000);
    doors.openAll();
    expect(doors.find(caller, 1_001)).toBeUndefined();
  });

  test('lets on who asks for fewer tokens than are left, or for more than it can tell when they fit', () => {
    const doors = new ClosedDoors();
    doors.close(caller, { ...door, closedUntil: 1_200, tokens: { room: 40, wanted: 100 } }, 1_000);
    expect(doors.find(caller, 1_100, 40)).toBeUndefined();
    expect(doors.find(caller, 1_100, 41)?.error).toMatchObject({ code: 'rate_limit_exceeded', retryAfterSeconds: 4 });
    expect(doors.find(caller, 1_100, 100)).toBeDefined();
    expect(doors.find(caller, 1_100, 101)).toBeUndefined();
    // Before the body is read nothing is known.
    expect(doors.find(caller, 1_100)).toBeUndefined();
    // From here on more may be free.
    expect(doors.find(caller, 1_200, 100)).toBeUndefined();
  });

  test('is forgotten for another when there are too many', () => {
    const doors = new ClosedDoors();
    for (let i = 0; i <= 1_000; i++) doors.close({ tenant: `t${i}`, keyId: 'a' }, door, 1_000);
    expect(doors.find({ tenant: 't0', keyId: 'a' }, 1_000)).toBeUndefined();
    expect(doors.find({ tenant: 't1000', keyId: 'a' }, 1_000)).toBeDefined();
  });
});

test('a prompt is estimated by its bytes, rather too high for English', () => {
  const chat = (content: string) => estimatePromptTokens({ prompt: { kind: 'chat', messages: [{ role: 'user', content }] } });
  expect(chat('')).toBeGreaterThan(0);
  expect(chat('x'.repeat(300)) - chat('')).toBe(100);
  expect(chat('漢'.repeat(100)) - chat('')).toBe(100);
  expect(estimatePromptTokens({ prompt: { kind: 'tokens', tokenIds: [1, 2, 3] } })).toBe(3);
  const text = { kind: 'text' as const, text: 'abc' };
  expect(estimatePromptTokens({ prompt: text, morePrompts: [text, text] })).toBe(3 * estimatePromptTokens({ prompt: text }));
});
