/**
 * SimulatedCards: what a gateway knows of its batchers in simulated time: each writes its card once an interval, at its own moment, and the gateway has
 * a copy that it reads again when it is asked and the copy has become old.
 * Guarantee: a card is what its batcher was when the card was written, although no time is spent on those that nobody reads.
 */
import { CARD_COPY_MS, CARD_INTERVAL_MS } from '../shared/keys.ts';
import { type CardLoad, type ModelLoad, sumOf } from '../shared/model-load.ts';

/** Of a batcher, which changes only where `at` was called first. */
export class SimulatedCard {
  readonly #batcher: { readonly load: CardLoad };
  #load: CardLoad;
  #nextAt: number;

  /** Written now, which is 0, then at `firstAt` and once an interval from there. */
  constructor(batcher: { readonly load: CardLoad }, firstAt: number) {
    this.#batcher = batcher;
    this.#load = batcher.load;
    this.#nextAt = firstAt;
  }

  /** The newest there is at that time. Since the batcher last changed it is what it is now, so that any card of meanwhile says the same. */
  at(now: number): CardLoad {
    if (now >= this.#nextAt) {
      this.#load = this.#batcher.load;
      this.#nextAt += CARD_INTERVAL_MS * (Math.floor((now - this.#nextAt) / CARD_INTERVAL_MS) + 1);
    }
    return this.#load;
  }
}

export class SimulatedBoard {
  readonly #cards: readonly SimulatedCard[];
  #load: ModelLoad;
  #readAt = 0;

  constructor(cards: readonly SimulatedCard[]) {
    this.#cards = cards;
    this.#load = this.#sum(0);
  }

  load(now: number): ModelLoad {
    if (now - this.#readAt > CARD_COPY_MS) {
      this.#load = this.#sum(now);
      this.#readAt = now;
    }
    return this.#load;
  }

  #sum(now: number): ModelLoad {
    return sumOf(this.#cards.map(card => card.at(now)));
  }
}
