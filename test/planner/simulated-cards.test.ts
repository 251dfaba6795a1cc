import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Carded, SimulatedBoard, SimulatedCard } from '../../planner/simulated-cards.ts';
import { CARD_COPY_MS, CARD_INTERVAL_MS } from '../../shared/keys.ts';

interface Batcher extends Carded {
  runningCount: number;
}

/** All that is asked of a batcher: what its card would say now. */
function batcher(): Batcher {
  return {
    runningCount: 0,
    get load() {
      const { runningCount } = this;
      return { runningCount, maxRunningCount: 4, waitingCount: 0, waitingTokens: 0, prefillTokensPerSecond: 0, decodeTokensPerSecond: 0 };
    },
  };
}

test('a card says what its batcher was when it was written, once a second', () => {
  const one = batcher();
  const card = new SimulatedCard(one, 300);
  const change = (at: number) => {
    card.changing(at);
    one.runningCount += 1;
  };
  change(200);
  expect(card.at(299).runningCount).toBe(0);
  expect(card.at(300).runningCount).toBe(1);
  change(1_100);
  expect(card.at(1_299).runningCount).toBe(1);
  // Nobody looks at it for a while: written at 1300, at 2300, and at 7300, before the batcher changed again.
  change(7_500);
  expect(card.at(7_600).runningCount).toBe(2);
  expect(card.at(8_300).runningCount).toBe(3);
});

test('a board tells the sum of the cards that there were when it was last read, at most half a second ago', () => {
  const count = 70;
  const acts = fc.array(fc.record({ afterMs: fc.nat(900), place: fc.nat(count - 1), isRead: fc.boolean() }), { maxLength: 200 });
  fc.assert(
    fc.property(acts, list => {
      const batchers = Array.from({ length: count }, batcher);
      const board = new SimulatedBoard(batchers);
      /** By batcher: when it changed, once each time. */
      const changes = batchers.map((): number[] => []);
      let [now, readAt] = [0, 0];
      for (const { afterMs, place, isRead } of list) {
        now += afterMs;
        if (!isRead) {
          board.changing(place, now);
          batchers[place]!.runningCount += 1;
          changes[place]!.push(now);
          continue;
        }
        if (now - readAt > CARD_COPY_MS) readAt = now;
        const written = changes.map((times, index) => {
          const phase = (CARD_INTERVAL_MS * (index + 1)) / count;
          const writtenAt = phase + CARD_INTERVAL_MS * Math.floor((readAt - phase) / CARD_INTERVAL_MS);
          return times.filter(at => at < writtenAt).length;
        });
        expect(board.load(now)).toMatchObject({ runningCount: written.reduce((sum, one) => sum + one, 0), maxRunningCount: 4 * count });
      }
    }),
  );
});
