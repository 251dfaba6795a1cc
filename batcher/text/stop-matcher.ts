/**
 * StopMatcher: finds the first stop string in text that comes in pieces, and lets out only what can't be part of one. For every split the text let
 * out is the same: all before the stop string that is complete first (of several that end together, the longest), or all of it.
 *
 * One Knuth-Morris-Pratt automaton a stop string, over code points, so that a surrogate pair is never cut. Held back is the longest end of the
 * text that begins a stop string.
 */

export interface MatchedText {
  /** Text that is now certain. */
  text: string;
  /** A stop string was found: `text` ends right before it, and nothing follows. */
  stopped: boolean;
}

interface Automaton {
  text: string;
  stop: Int32Array;
  /** fallback[n]: length of the longest proper beginning of the stop string's first n code points that also ends them. */
  fallback: Int32Array;
  /** Code points matched so far. */
  matched: number;
}

export class StopMatcher {
  readonly #automata: Automaton[];
  /** Characters let in and not let out: the longest match of all automata. */
  readonly #held: string[] = [];
  /** Index in #held of the first that is not let out; those before it are dropped a lot at a time, so that none is moved more than once on average. */
  #heldFrom = 0;
  #found: string | undefined;

  /** Empty strings stop nothing. */
  constructor(stops: readonly string[]) {
    this.#automata = stops.filter(stop => stop !== '').map(automaton);
  }

  get isStopped(): boolean {
    return this.#found !== undefined;
  }

  /** The stop string that was found. */
  get found(): string | undefined {
    return this.#found;
  }

  /** UTF-16 units held back. */
  get heldLength(): number {
    return this.#held.slice(this.#heldFrom).join('').length;
  }

  push(text: string): MatchedText {
    if (this.isStopped) return { text: '', stopped: true };
    if (this.#automata.length === 0) return { text, stopped: false };
    let certain = '';
    for (const character of text) {
      this.#held.push(character);
      const { matched, complete } = this.#step(character.codePointAt(0)!);
      if (complete !== undefined) {
        certain += this.#letOutAllBut(complete.stop.length);
        this.#letOutAllBut(0);
        this.#found = complete.text;
        break;
      }
      certain += this.#letOutAllBut(matched);
    }
    return { text: certain, stopped: this.isStopped };
  }

  /** No more text: what was held back is certain. */
  end(): string {
    return this.#letOutAllBut(0);
  }

  #letOutAllBut(count: number): string {
    const to = this.#held.length - count;
    const text = this.#heldFrom < to ? this.#held.slice(this.#heldFrom, to).join('') : '';
    this.#heldFrom = to;
    if (to * 2 >= this.#held.length) {
      this.#held.splice(0, to);
      this.#heldFrom = 0;
    }
    return text;
  }

  /** Length of the longest partial match after one more code point, and the longest complete one. */
  #step(codePoint: number): { matched: number; complete: Automaton | undefined } {
    let matched = 0;
    let complete: Automaton | undefined;
    for (const one of this.#automata) {
      while (one.matched > 0 && one.stop[one.matched] !== codePoint) one.matched = one.fallback[one.matched]!;
      if (one.stop[one.matched] === codePoint) one.matched++;
      if (one.matched > matched) matched = one.matched;
      if (one.matched === one.stop.length && one.matched > (complete?.matched ?? 0)) complete = one;
    }
    return { matched, complete };
  }
}

function automaton(text: string): Automaton {
  const stop = Int32Array.from(text, character => character.codePointAt(0)!);
  const fallback = new Int32Array(stop.length + 1);
  let border = 0;
  for (let length = 2; length <= stop.length; length++) {
    const next = stop[length - 1]!;
    while (border > 0 && stop[border] !== next) border = fallback[border]!;
    if (stop[border] === next) border++;
    fallback[length] = border;
  }
  return { text, stop, fallback, matched: 0 };
}
