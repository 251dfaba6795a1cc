/**
 * SimulatedCards: what a gateway knows of its batchers in simulated time: each writes its card once an interval, at its own moment, and the gateway has
 * a copy that it reads again when it is asked and the copy has become old.
 * Guarantee: a card is what its batcher was when the card was written, although no time is spent on those that nobody reads.
 */
import { CARD_COPY_MS, CARD_INTERVAL_MS } from '../shared/keys.ts';
import { type CardLoad, type ModelLoad, sumOf } from '../shared/model-load.ts';

/** Of a batcher what is written on its card. */
export interface Carded {
  readonly load: CardLoad;
}

export class SimulatedCard {
  readonly #batcher: Carded;
  #load: CardLoad;
  /** When it is written next, where that would say anything new. */
  #nextAt: number;
  #isBehind = false;

  /** Written at 0, then at `firstAt` and once an interval from there. */
  constructor(batcher: Carded, firstAt: number) {
    this.#batcher = batcher;
    this.#load = batcher.load;
    this.#nextAt = firstAt;
  }

  /** The batcher has changed since it was written. */
  get isBehind(): boolean {
    return this.#isBehind;
  }

  /** The newest there is at that time, which was written since the batcher's last change or before that. */
  at(now: number): CardLoad {
    if (this.#isBehind && now >= this.#nextAt) {
      this.#load = this.#batcher.load;
      this.#isBehind = false;
    }
    return this.#load;
  }

  /** The batcher is about to change. */
  changing(now: number): void {
    this.at(now);
    if (now >= this.#nextAt) this.#nextAt += CARD_INTERVAL_MS * (Math.floor((now - this.#nextAt) / CARD_INTERVAL_MS) + 1);
    this.#isBehind = true;
  }
}

/** Cards that are summed again when one of them may say something new. */
interface Group {
  cards: SimulatedCard[];
  load: ModelLoad;
  isBehind: boolean;
}

/** About the root of how many batchers there are at the most: a read takes as many groups, and as many cards of each that has changed. */
const GROUP_CARDS = 32;

export class SimulatedBoard {
  readonly #groups: Group[] = [];
  #load: ModelLoad;
  #readAt = 0;

  constructor(batchers: readonly Carded[]) {
    const cards = batchers.map((batcher, index) => new SimulatedCard(batcher, (CARD_INTERVAL_MS * (index + 1)) / batchers.length));
    for (let first = 0; first < cards.length; first += GROUP_CARDS) {
      const group = cards.slice(first, first + GROUP_CARDS);
      this.#groups.push({ cards: group, load: sumOf(group.map(card => card.at(0))), isBehind: false });
    }
    this.#load = sumOf(this.#groups.map(group => group.load));
  }

  /** The batcher at this place is about to change; without that word its card stays as it is. */
  changing(place: number, now: number): void {
    const group = this.#groups[Math.floor(place / GROUP_CARDS)]!;
    group.cards[place % GROUP_CARDS]!.changing(now);
    group.isBehind = true;
  }

  load(now: number): ModelLoad {
    if (now - this.#readAt > CARD_COPY_MS) {
      for (const group of this.#groups) if (group.isBehind) refresh(group, now);
      this.#load = sumOf(this.#groups.map(group => group.load));
      this.#readAt = now;
    }
    return this.#load;
  }
}

function refresh(group: Group, now: number): void {
  group.load = sumOf(group.cards.map(card => card.at(now)));
  group.isBehind = group.cards.some(card => card.isBehind);
}
