/** LineWindow: as many lines as are let in, and after a refusal no flood of others. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LineWindow } from '../../../gateway/batches/line-window.ts';

/** A queue that lets so many in at once, asked for as much as the window allows. */
function fill(window: LineWindow, letsIn: number, now: number): { refusedCount: number } {
  let refusedCount = 0;
  for (let round = 0; round < 3; round++) {
    const begun = window.room(now);
    for (let i = 0; i < begun; i++) window.begin(now);
    const surplus = Math.max(0, window.runningCount - letsIn);
    for (let i = 0; i < surplus; i++) window.refused(now, undefined);
    refusedCount += surplus;
  }
  return { refusedCount };
}

test('all of it is used where nothing refuses, and never more', () => {
  const window = new LineWindow(8);
  expect(window.room(0)).toBe(8);
  for (let i = 0; i < 8; i++) window.begin(0);
  expect(window.room(1e9)).toBe(0);
});

test('it settles at what is let in, and asks for one more now and then', () => {
  const window = new LineWindow(16);
  expect(fill(window, 4, 0).refusedCount).toBe(12);
  expect(window.runningCount).toBe(4);
  expect(fill(window, 4, 500).refusedCount).toBe(0);
  expect(fill(window, 4, 1_000).refusedCount).toBe(1);
  // More is let in: each answer opens it by one.
  for (let now = 2_000; now < 30_000; now += 100) {
    window.answered();
    fill(window, 100, now);
  }
  expect(window.runningCount).toBe(16);
});

test('nothing is let in: the pauses grow, and what was said of the time is kept to', () => {
  const window = new LineWindow(4);
  let now = 0;
  const pauses: number[] = [];
  for (let i = 0; i < 9; i++) {
    fill(window, 0, now);
    pauses.push(window.triedAgainAt - now);
    now = window.triedAgainAt;
  }
  expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
  window.begin(now);
  window.answered();
  window.begin(now);
  window.refused(now, 5_000);
  expect(window.triedAgainAt).toBe(now + 5_000);
});

test('whatever happens, the counts stay possible', () => {
  const act = fc.record({ kind: fc.constantFrom('begin', 'answered', 'refused'), pauseMs: fc.nat(3_000) });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 6 }), fc.array(act, { maxLength: 200 }), (most, acts) => {
      const window = new LineWindow(most);
      let now = 0;
      for (const { kind, pauseMs } of acts) {
        now += pauseMs;
        if (kind === 'begin' && window.room(now) > 0) window.begin(now);
        else if (kind === 'answered' && window.runningCount > 0) window.answered();
        else if (kind === 'refused' && window.runningCount > 0) window.refused(now, undefined);
        window.check();
        // It never closes for good.
        expect(window.runningCount === most || window.room(window.triedAgainAt) > 0).toBe(true);
      }
    }),
  );
});
