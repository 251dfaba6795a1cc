/** SlidingWindow: never less than what any minute holds, and room when it says that there is. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SlidingWindow, WINDOW_MS } from '../../../gateway/tenant/sliding-window.ts';

describe('room', () => {
  test('an empty window has it at once, up to the limit', () => {
    const window = new SlidingWindow();
    expect(window.fitsAt(10, 10, 5_000)).toBe(5_000);
    expect(window.fitsAt(11, 10, 5_000)).toBeUndefined();
    expect(window.emptyAt(5_000)).toBe(5_000);
  });

  test('what was spent makes room a minute later, not a moment before', () => {
    const window = new SlidingWindow();
    window.spend(10, 5_999, 5_999);
    const at = window.fitsAt(1, 10, 6_000)!;
    expect(at).toBeGreaterThanOrEqual(5_999 + WINDOW_MS);
    expect(window.total(at - 1)).toBe(10);
    expect(window.total(at)).toBe(0);
    expect(window.fitsAt(10, 10, at)).toBe(at);
  });

  test('what is firm leaves no room until its time, whatever ends meanwhile', () => {
    const window = new SlidingWindow();
    expect(window.firm(1_000)).toBeUndefined();
    window.hold(50, 1_000);
    expect(window.firm(1_000)).toBeUndefined();
    window.spend(30, 2_000, 2_000);
    const { total, until } = window.firm(2_000)!;
    expect(total).toBe(30);
    window.release(50, 1_000);
    window.spend(5, 1_000, 2_500);
    expect(window.fitsAt(71, 100, until - 1)).not.toBe(until - 1);
    expect(window.fitsAt(71, 100, until)).toBe(until);
  });

  test('what is held stays beyond its minute', () => {
    const window = new SlidingWindow();
    window.hold(10, 0);
    expect(window.total(10 * WINDOW_MS)).toBe(10);
    expect(window.fitsAt(1, 10, 10 * WINDOW_MS)).toBeGreaterThan(10 * WINDOW_MS);
    window.release(10, 0);
    window.spend(7, 0, 10 * WINDOW_MS);
    expect(window.total(10 * WINDOW_MS)).toBe(0);
  });
});

test('any minute holds at most what the window said at its end', () => {
  const step = fc.record({
    pauseMs: fc.oneof(fc.nat(2_000), fc.nat(30_000), fc.constant(WINDOW_MS)),
    amount: fc.integer({ min: 1, max: 400 }),
    usedShare: fc.double({ min: 0, max: 1, noNaN: true }),
    lastsMs: fc.nat(90_000),
    isRefused: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), fc.integer({ min: 100, max: 1_000 }), (steps, limit) => {
      const window = new SlidingWindow();
      const admitted: { at: number; amount: number }[] = [];
      let open: { at: number; amount: number; used: number; endsAt: number; isRefused: boolean; entry: { amount: number } }[] = [];
      let now = 1_000;
      for (const { pauseMs, amount, usedShare, lastsMs, isRefused } of steps) {
        now += pauseMs;
        for (const one of open.filter(each => each.endsAt <= now)) {
          window.release(one.amount, one.at);
          if (!one.isRefused) window.spend(one.used, one.at, now);
          one.entry.amount = one.isRefused ? 0 : one.used;
        }
        open = open.filter(each => each.endsAt > now);
        const fitsAt = window.fitsAt(amount, limit, now);
        if (fitsAt === now) {
          window.hold(amount, now);
          const entry = { at: now, amount };
          admitted.push(entry);
          open.push({ at: now, amount, used: Math.floor(amount * usedShare), endsAt: now + lastsMs, isRefused, entry });
        } else if (amount <= limit) {
          expect(fitsAt).toBeGreaterThan(now);
        }
        window.check();
        const inLastMinute = admitted.filter(({ at }) => at > now - WINDOW_MS).reduce((sum, entry) => sum + entry.amount, 0);
        expect(window.total(now)).toBeGreaterThanOrEqual(inLastMinute);
        expect(inLastMinute).toBeLessThanOrEqual(limit);
      }
    }),
  );
});
