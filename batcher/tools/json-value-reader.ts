/** JsonValueReader: where a JSON value ends, character by character. It minds strings and nesting and nothing else, so it also finds the end of what is not quite JSON. */

/** `past`: it ended before this character. */
export type ValueStanding = 'open' | 'whole' | 'past';

export class JsonValueReader {
  readonly kind: 'string' | 'object' | 'list' | 'word';
  #raw: string;
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  /** From the value's first character. */
  constructor(first: string) {
    this.kind = first === '"' ? 'string' : first === '{' ? 'object' : first === '[' ? 'list' : 'word';
    this.#raw = first;
    this.#isInString = this.kind === 'string';
    this.#depth = this.kind === 'object' || this.kind === 'list' ? 1 : 0;
  }

  take(character: string): ValueStanding {
    if (this.kind === 'word' && ',}] \t\n\r'.includes(character)) return 'past';
    // Markup begins here: the value was not closed.
    if (character === '<' && this.#depth > 0 && !this.#isInString) return 'past';
    // Of what nests only the end is wanted.
    if (this.#depth === 0) this.#raw += character;
    if (this.#isInString) this.#inString(character);
    else if (character === '"') this.#isInString = this.kind !== 'word';
    else if (character === '{' || character === '[') this.#depth += this.kind === 'word' ? 0 : 1;
    else if (character === '}' || character === ']') this.#depth -= 1;
    return this.kind !== 'word' && !this.#isInString && this.#depth === 0 ? 'whole' : 'open';
  }

  /** The value of a string or a word that is whole; undefined where it is none of JSON's. */
  get parsed(): unknown {
    try {
      return JSON.parse(this.#raw);
    } catch {
      return undefined;
    }
  }

  #inString(character: string): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (character === '\\') this.#isEscaped = true;
    else if (character === '"') this.#isInString = false;
  }
}
