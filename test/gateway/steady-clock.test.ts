import fc from 'fast-check';
import { expect, test } from 'vitest';
import { SteadyClock } from '../../gateway/steady-clock.ts';

test('tells what has passed, whatever the wall clock is set to in between', () => {
  const step = fc.record({ passedMs: fc.nat(30_000), jumpMs: fc.constantFrom(0, 0, 0, 3_600_000, -3_600_000, 40_000, -1) });
  fc.assert(
    fc.property(fc.array(step), steps => {
      let wall = 1_800_000_000_000;
      const clock = new SteadyClock(() => wall);
      const start = clock.now();
      let passed = 0;
      for (const { passedMs, jumpMs } of steps) {
        wall += passedMs;
        passed += passedMs;
        expect(clock.now() - start).toBe(passed);
        wall += jumpMs;
        // Looked at right after the jump, or the jump and what passes until the next look are one step.
        expect(clock.now() - start).toBe(passed);
      }
    }),
  );
});

test('never goes back', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: -1e12, max: 1e12 })), jumps => {
      let wall = 0;
      const clock = new SteadyClock(() => wall);
      let last = clock.now();
      for (const jump of jumps) {
        wall += jump;
        const now = clock.now();
        expect(now).toBeGreaterThanOrEqual(last);
        last = now;
      }
    }),
  );
});
