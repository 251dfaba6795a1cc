/**
 * CallParser: tells the calls in an answer's text from the rest of it, piece by piece as the text comes; however it is cut, the joined text and calls
 * are the same. A call is told from when its function is known and its arguments have begun. What only looked like one is text again; white space
 * around calls is no text, unless text stands on both sides.
 */
import { type CallDelta, joinedCalls } from '../../shared/token-event.ts';
import { CallReader } from './call-reader.ts';
import { NamedCallReader } from './named-call-reader.ts';
import { CALL_MARKUP, type CallMarkup, type ToolSyntax } from './tool-format.ts';

export interface CallParserOptions extends ToolSyntax {
  /** Functions that may be called. */
  names: ReadonlySet<string>;
  /** Calls and nothing else: what is no call is left out. */
  isForced: boolean;
}

export interface ParsedText {
  text: string;
  calls: CallDelta[];
}

/** What has come of a call before its function is known, at most; so much text is held back, and looked at again when it was none. */
const MAX_HELD_CHARACTERS = 4_096;
const SPACE = /^\s$/u;

export class CallParser {
  readonly #options: CallParserOptions;
  readonly #markup: CallMarkup;
  /**
   *   text ──opener──▶ opened ──{──▶ call ──}──▶ behind ──▶ text
   *                                    ▲────────────┘
   */
  #place: 'text' | 'opened' | 'call' | 'behind' = 'text';
  /** What is text if no call comes of it. */
  #held = '';
  #reader: CallReader | NamedCallReader | undefined;
  #isInList = false;
  #callCount = 0;
  /** Nothing but white space has come. */
  #isAtStart = true;
  #hasSpoken = false;
  #space = '';
  #text = '';
  #calls: CallDelta[] = [];

  constructor(options: CallParserOptions) {
    this.#options = options;
    this.#markup = CALL_MARKUP[options.format];
  }

  /** Calls that were told, at least their beginning. */
  get callCount(): number {
    return this.#callCount;
  }

  /** Within what is a call or looks like one so far. */
  get isInCall(): boolean {
    return this.#place !== 'text';
  }

  /** Characters at the end of the text with which a call may be about to begin. */
  get openingLength(): number {
    return this.#place === 'text' ? this.#held.length : 0;
  }

  push(text: string): ParsedText {
    this.#run(text);
    return this.#taken();
  }

  /** No more text comes. */
  end(): ParsedText {
    if (this.#place === 'behind') this.#leave('');
    // What is given back may hold the beginning of another call.
    while (this.#held !== '') {
      if (this.#place === 'text') {
        this.#say(this.#held);
        this.#held = '';
      } else {
        this.#run(this.#giveBack());
      }
    }
    if (this.#callCount === 0 && !this.#options.isForced) this.#text += this.#space;
    this.#space = '';
    return this.#taken();
  }

  #taken(): ParsedText {
    const taken = { text: this.#text, calls: joinedCalls(this.#calls) };
    this.#text = '';
    this.#calls = [];
    return taken;
  }

  #run(text: string): void {
    let input = text;
    for (let at = 0; at < input.length; ) {
      const character = String.fromCodePoint(input.codePointAt(at)!);
      at += character.length;
      const back = this.#take(character);
      if (back === '') continue;
      input = back + input.slice(at);
      at = 0;
    }
  }

  /** Returns what is to be taken once more, as text. */
  #take(character: string): string {
    switch (this.#place) {
      case 'text':
        return this.#inText(character);
      case 'opened':
        return this.#inOpened(character);
      case 'call':
        return this.#inCall(character);
      case 'behind':
        return this.#inBehind(character);
    }
  }

  #inText(character: string): string {
    const { opener, isBare } = this.#markup;
    if (character === opener[this.#held.length]) {
      this.#held += character;
      if (this.#held.length < opener.length) return '';
      this.#place = 'opened';
      this.#isAtStart = false;
      return '';
    }
    if (this.#held !== '') {
      this.#say(this.#held);
      this.#held = '';
      return character;
    }
    if (isBare && this.#isAtStart && character === '{') return this.#begin(character);
    this.#say(character);
    return '';
  }

  #inOpened(character: string): string {
    const { mayBeNamed = false } = this.#markup;
    if (character === '{' || (mayBeNamed && !this.#isInList && NamedCallReader.begins(character))) return this.#begin(character);
    this.#held += character;
    if (SPACE.test(character) && this.#held.length < MAX_HELD_CHARACTERS) return '';
    if (character !== '[' || !this.#markup.isList || this.#isInList) return this.#giveBack();
    this.#isInList = true;
    return '';
  }

  #begin(character: string): string {
    this.#place = 'call';
    this.#isAtStart = false;
    const { names } = this.#options;
    this.#reader =
      character === '{'
        ? new CallReader({ isFunction: name => names.has(name), needsArguments: this.#markup.isBare })
        : new NamedCallReader(names);
    return this.#inCall(character);
  }

  #inCall(character: string): string {
    const reader = this.#reader!;
    const wasTold = reader.name !== undefined;
    reader.take(character);
    const { standing } = reader;
    if (!wasTold) {
      this.#held += character;
      if (standing === 'refuted') return this.#giveBack();
      if (reader.name === undefined) return this.#held.length < MAX_HELD_CHARACTERS ? '' : this.#giveBack();
      this.#tell(reader.name);
    }
    const piece = reader.takeArguments();
    if (piece !== '') this.#calls.push({ index: this.#callCount - 1, arguments: piece });
    if (standing === 'open') return '';
    this.#place = 'behind';
    return standing === 'past' ? character : '';
  }

  #tell(name: string): void {
    this.#calls.push({ index: this.#callCount, name, arguments: '' });
    this.#callCount += 1;
    this.#held = '';
    if (!this.#hasSpoken) this.#space = '';
  }

  #inBehind(character: string): string {
    const { closer, separator, isList } = this.#markup;
    const mark = this.#held.trimStart();
    if (mark === '' && SPACE.test(character) && this.#held.length < MAX_HELD_CHARACTERS) {
      this.#held += character;
      return '';
    }
    if (closer !== undefined) {
      if (character !== closer[mark.length]) return this.#leave(character);
      this.#held += character;
      return mark.length + 1 === closer.length ? this.#leave('') : '';
    }
    if (mark === '' && isList && this.#isInList && character === ']') {
      this.#isInList = false;
      return this.#leave('');
    }
    if (mark === '' && character === separator) {
      this.#held += character;
      return '';
    }
    if (mark !== '' && SPACE.test(character)) {
      this.#held += character;
      return '';
    }
    if (character === '{' && (!isList || this.#isInList)) return this.#begin(character);
    return this.#leave(character);
  }

  /** Behind a call: what was held is the rest of its markup, or text with what comes. */
  #leave(character: string): string {
    const held = this.#held;
    this.#place = 'text';
    this.#held = '';
    this.#isInList = false;
    return character === '' ? '' : held + character;
  }

  /** What looked like a call is text: the first of it at once, the rest to be looked at again. */
  #giveBack(): string {
    const { opener } = this.#markup;
    const held = this.#held;
    this.#place = 'text';
    this.#held = '';
    this.#isInList = false;
    this.#reader = undefined;
    if (!held.startsWith(opener)) {
      // Behind the opener of another call or at the start of a bare one: the brace begins nothing any more.
      const brace = held.indexOf('{') + 1;
      this.#say(held.slice(0, brace));
      return held.slice(brace);
    }
    if (this.#options.openerTokenId === undefined) this.#say(opener);
    return held.slice(opener.length);
  }

  #say(text: string): void {
    if (this.#options.isForced) return;
    for (const character of text) {
      if (SPACE.test(character)) {
        this.#space += character;
        continue;
      }
      this.#text += this.#space + character;
      this.#space = '';
      this.#hasSpoken = true;
      this.#isAtStart = false;
    }
  }
}
