/**
 * NamedCallReader: one call as newer models of Mistral write it, character by character: the function's name, then its arguments, as
 * `name[ARGS]{…}`, `name[CALL_ID]id[ARGS]{…}`, or without the marks, which are tokens without text in their vocabularies: `name{…}`, `nameid{…}`. It is
 * known to be a call when its arguments have begun; from there on they are given on as they come. An id is Mistral's, of nine letters and digits.
 */
import type { CallStanding } from './call-reader.ts';
import { JsonValueReader } from './json-value-reader.ts';
import { ARGUMENTS_MARK, CALL_ID_LENGTH, ID_MARK } from './tool-format.ts';

const NAME_CHARACTER = /^[a-zA-Z0-9_-]$/;
const SPACE = /^[ \t\n\r]$/;
const ID = /^[a-zA-Z0-9]*$/;

export class NamedCallReader {
  readonly #names: ReadonlySet<string>;
  /** In the order of a call; a mark is being read where there is one. */
  #place: 'name' | 'id' | 'before' | 'arguments' = 'name';
  #standing: CallStanding = 'open';
  #head = '';
  #mark = '';
  #idLength = 0;
  #value: JsonValueReader | undefined;
  #name: string | undefined;
  /** That were not given on. */
  #piece = '';

  /** Of the functions that may be called. */
  constructor(names: ReadonlySet<string>) {
    this.#names = names;
  }

  /** Whether a call may begin so. */
  static begins(character: string): boolean {
    return NAME_CHARACTER.test(character);
  }

  get standing(): CallStanding {
    return this.#standing;
  }

  /** Of the function; undefined while it is not known to be a call. */
  get name(): string | undefined {
    return this.#value === undefined ? undefined : this.#name;
  }

  /** What came of the arguments since it was asked for before. */
  takeArguments(): string {
    const piece = this.#piece;
    this.#piece = '';
    return piece;
  }

  take(character: string): void {
    if (this.#standing !== 'open') return;
    if (this.#value !== undefined) this.#inArguments(this.#value, character);
    else if (this.#mark !== '') this.#inMark(character);
    else if (character === '{') this.#begin();
    else if (character === '[') this.#startMark();
    else if (SPACE.test(character)) this.#leaveName();
    else if (this.#place === 'name') this.#inName(character);
    else if (this.#place === 'id' && ID.test(character) && this.#idLength < CALL_ID_LENGTH) this.#idLength += 1;
    else this.#standing = 'refuted';
  }

  #inName(character: string): void {
    this.#head += character;
    const isNear = [...this.#names].some(name => name.startsWith(this.#head) || this.#isWithId(name));
    if (!NAME_CHARACTER.test(character) || !isNear) this.#standing = 'refuted';
  }

  /** The name, and an id or its beginning behind it. */
  #isWithId(name: string): boolean {
    const id = this.#head.slice(name.length);
    return this.#head.startsWith(name) && id.length <= CALL_ID_LENGTH && ID.test(id);
  }

  #leaveName(): void {
    if (this.#place !== 'name') {
      if (this.#place === 'id') this.#place = 'before';
      return;
    }
    this.#name = this.#names.has(this.#head)
      ? this.#head
      : [...this.#names].find(name => this.#isWithId(name) && this.#head.length === name.length + CALL_ID_LENGTH);
    this.#place = 'before';
    if (this.#name === undefined) this.#standing = 'refuted';
  }

  #startMark(): void {
    this.#leaveName();
    this.#mark = '[';
  }

  #inMark(character: string): void {
    this.#mark += character;
    if (this.#mark === ID_MARK) this.#place = 'id';
    else if (this.#mark === ARGUMENTS_MARK) this.#place = 'before';
    else {
      if (!ID_MARK.startsWith(this.#mark) && !ARGUMENTS_MARK.startsWith(this.#mark)) this.#standing = 'refuted';
      return;
    }
    this.#mark = '';
  }

  #begin(): void {
    this.#leaveName();
    if (this.#standing !== 'open') return;
    this.#place = 'arguments';
    this.#value = new JsonValueReader('{');
    this.#piece = '{';
  }

  #inArguments(value: JsonValueReader, character: string): void {
    const standing = value.take(character);
    if (standing !== 'past') this.#piece += character;
    this.#standing = standing;
  }
}
