/**
 * ReasoningParser: tells the reasoning at the beginning of an answer from the rest of it, piece by piece as the text comes; however it is cut, the
 * joined parts are the same. White space at both ends of the reasoning, and right behind it, belongs to neither.
 */
import { REASONING_CLOSER, REASONING_OPENER, type Reasoning } from './reasoning-syntax.ts';

export interface ParsedReasoning {
  reasoning: string;
  /** All else. */
  text: string;
}

/** White space in front of the opener, at most: past it what comes is the answer. */
const MAX_SPACE = 64;
const SPACE = /^\s$/u;

export class ReasoningParser {
  /**
   *   start ──opener──▶ reasoning ──closer──▶ behind ──▶ answer
   *     └────────────────────anything else────────────────▲
   */
  #place: 'start' | 'reasoning' | 'behind' | 'answer';
  /** May be the beginning of a mark; at the start with the white space before it. */
  #held = '';
  #space = '';
  #hasReasoned = false;
  #isTextAgain = false;
  #reasoning = '';
  #text = '';

  constructor({ start }: Pick<Reasoning, 'start'>) {
    this.#place = start === 'begun' ? 'reasoning' : 'start';
  }

  get isReasoning(): boolean {
    return this.#place === 'reasoning';
  }

  /** Nothing that comes is the answer's text yet. */
  get isApart(): boolean {
    return this.#place === 'reasoning' || this.#place === 'behind';
  }

  /** The last character pushed is the first of the answer behind the reasoning. */
  get isTextAgain(): boolean {
    return this.#isTextAgain;
  }

  /** Characters at the end of the text with which reasoning may be about to begin. */
  get openingLength(): number {
    return this.#place === 'start' ? this.#held.length : 0;
  }

  push(text: string): ParsedReasoning {
    this.#isTextAgain = false;
    let at = 0;
    while (at < text.length && this.#place !== 'answer') {
      const character = String.fromCodePoint(text.codePointAt(at)!);
      at += character.length;
      this.#take(character);
    }
    this.#text += text.slice(at);
    return this.#taken();
  }

  /** No more text comes. */
  end(): ParsedReasoning {
    if (this.#place === 'start') this.#text += this.#held;
    else if (this.#place === 'reasoning' && this.#held !== '') this.#think(this.#held);
    this.#held = '';
    return this.#taken();
  }

  #taken(): ParsedReasoning {
    const taken = { reasoning: this.#reasoning, text: this.#text };
    this.#reasoning = '';
    this.#text = '';
    return taken;
  }

  #take(character: string): void {
    switch (this.#place) {
      case 'start':
        this.#atStart(character);
        return;
      case 'reasoning':
        this.#inReasoning(character);
        return;
      case 'behind':
        if (SPACE.test(character)) return;
        this.#place = 'answer';
        this.#isTextAgain = true;
        this.#text += character;
        return;
      case 'answer':
        this.#text += character;
    }
  }

  #atStart(character: string): void {
    const mark = this.#held.trimStart();
    this.#held += character;
    if (mark === '' && SPACE.test(character) && this.#held.length <= MAX_SPACE) return;
    if (character === REASONING_OPENER[mark.length]) {
      if (mark.length + 1 < REASONING_OPENER.length) return;
      this.#place = 'reasoning';
    } else {
      this.#place = 'answer';
      this.#text += this.#held;
    }
    this.#held = '';
  }

  #inReasoning(character: string): void {
    if (character === REASONING_CLOSER[this.#held.length]) {
      this.#held += character;
      if (this.#held.length < REASONING_CLOSER.length) return;
      this.#place = 'behind';
      this.#held = '';
      this.#space = '';
      return;
    }
    const held = this.#held;
    this.#held = '';
    if (held !== '') this.#think(held);
    // The character may begin the closer after all.
    if (held !== '' && character === REASONING_CLOSER[0]) this.#held = character;
    else this.#think(character);
  }

  #think(text: string): void {
    if (SPACE.test(text)) {
      if (this.#hasReasoned) this.#space += text;
      return;
    }
    this.#reasoning += this.#space + text;
    this.#space = '';
    this.#hasReasoned = true;
  }
}
