import { expect, test } from 'vitest';
import { SimulatedBoard, SimulatedCard } from '../../planner/simulated-cards.ts';
import type { CardLoad } from '../../shared/model-load.ts';

/** All that is asked of a batcher: what its card would say now. */
const batcher = (): { load: CardLoad } => ({
  load: { runningCount: 0, maxRunningCount: 4, waitingCount: 0, waitingTokens: 0, prefillTokensPerSecond: 0, decodeTokensPerSecond: 0 },
});
/** As a fleet does it: first the card, then the change. */
function change(one: { load: CardLoad }, card: SimulatedCard, { at, runningCount }: { at: number; runningCount: number }): void {
  card.at(at);
  one.load = { ...one.load, runningCount };
}

test('a card says what its batcher was when it was written, once a second', () => {
  const one = batcher();
  const card = new SimulatedCard(one, 300);
  change(one, card, { at: 200, runningCount: 1 });
  expect(card.at(299).runningCount).toBe(0);
  expect(card.at(300).runningCount).toBe(1);
  change(one, card, { at: 1_100, runningCount: 2 });
  expect(card.at(1_299).runningCount).toBe(1);
  // Nobody looks at it for a while: written at 1300, at 2300, and at 7300, before the batcher changed again.
  change(one, card, { at: 7_500, runningCount: 3 });
  expect(card.at(7_600).runningCount).toBe(2);
  expect(card.at(8_300).runningCount).toBe(3);
});

test('a board tells the sum of all, as it was up to half a second ago', () => {
  const members = [batcher(), batcher()];
  const cards = members.map((one, index) => new SimulatedCard(one, 500 * (index + 1)));
  const board = new SimulatedBoard(cards);
  for (const [index, one] of members.entries()) change(one, cards[index]!, { at: 100, runningCount: 1 });
  expect(board.load(500)).toMatchObject({ runningCount: 0, maxRunningCount: 8 });
  expect(board.load(501).runningCount).toBe(1);
  expect(board.load(1_001).runningCount).toBe(1);
  expect(board.load(1_002).runningCount).toBe(2);
});
