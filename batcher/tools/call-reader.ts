/**
 * CallReader: one call's JSON object, character by character: `{"name": …, "arguments": {…}}`, keys in any order. It is known to be a call when its
 * name is and its arguments have begun; from there on the arguments are given on as they come, whatever they are. Arguments that are written as a
 * text of JSON are that text.
 */
import { JsonValueReader } from './json-value-reader.ts';

/** `past`: it ended before this character, and what it has is all of it. */
export type CallStanding = 'open' | 'whole' | 'past' | 'refuted';

export interface CallReaderOptions {
  isFunction(name: string): boolean;
  /** A call without arguments is none. */
  needsArguments: boolean;
}

const SPACE = /^[ \t\n\r]$/;
const ARGUMENTS = new Set(['arguments', 'parameters']);

export class CallReader {
  readonly #options: CallReaderOptions;
  #place: 'before' | 'key' | 'colon' | 'value' | 'next' = 'before';
  #standing: CallStanding = 'open';
  #key: JsonValueReader | undefined;
  #value: JsonValueReader | undefined;
  #role: 'name' | 'arguments' | 'other' = 'other';
  #name: string | undefined;
  /** Undefined until they have begun. */
  #arguments: string | undefined;
  /** Of them, what was given on. */
  #givenLength = 0;

  constructor(options: CallReaderOptions) {
    this.#options = options;
  }

  get standing(): CallStanding {
    return this.#standing;
  }

  /** Of the function; undefined while it is not known to be a call. */
  get name(): string | undefined {
    return this.#arguments === undefined ? undefined : this.#name;
  }

  /** Of the arguments of what is known to be a call, what came since it was asked for before. */
  takeArguments(): string {
    if (this.name === undefined) return '';
    const piece = this.#arguments!.slice(this.#givenLength);
    this.#givenLength = this.#arguments!.length;
    return piece;
  }

  take(character: string): void {
    if (this.#standing !== 'open') return;
    if (this.#value !== undefined) {
      this.#inValue(this.#value, character);
      return;
    }
    if (this.#key !== undefined) {
      if (this.#key.take(character) === 'whole') this.#place = 'colon';
      else return;
      this.#role = roleOf(this.#key.parsed, { hasName: this.#name !== undefined, hasArguments: this.#arguments !== undefined });
      this.#key = undefined;
      return;
    }
    if (SPACE.test(character)) return;
    switch (this.#place) {
      case 'before':
        if (character === '{') this.#place = 'key';
        else this.#refute();
        return;
      case 'key':
        if (character === '"') this.#key = new JsonValueReader(character);
        else if (character === '}') this.#close();
        else this.#refute();
        return;
      case 'colon':
        if (character === ':') this.#place = 'value';
        else this.#refute();
        return;
      case 'value':
        this.#beginValue(character);
        return;
      case 'next':
        if (character === ',') this.#place = 'key';
        else if (character === '}') this.#close();
        else this.#refute();
    }
  }

  #beginValue(character: string): void {
    this.#value = new JsonValueReader(character);
    const { kind } = this.#value;
    if (this.#role === 'name' && kind !== 'string') this.#refute();
    if (this.#role !== 'arguments') return;
    if (kind === 'object') this.#arguments = character;
    else if (kind === 'list') this.#refute();
  }

  #inValue(value: JsonValueReader, character: string): void {
    const standing = value.take(character);
    if (this.#role === 'arguments' && value.kind === 'object' && standing !== 'past') this.#arguments += character;
    if (standing === 'open') return;
    this.#value = undefined;
    this.#place = 'next';
    this.#endValue(value);
    if (standing === 'past') this.take(character);
  }

  #endValue(value: JsonValueReader): void {
    if (this.#role === 'name') {
      const name = value.parsed;
      if (typeof name === 'string' && this.#options.isFunction(name)) this.#name = name;
      else this.#refute();
    } else if (this.#role === 'arguments' && value.kind !== 'object') {
      const { parsed } = value;
      if (typeof parsed === 'string') this.#arguments = parsed === '' ? '{}' : parsed;
      else if (parsed === null) this.#arguments = '{}';
      else this.#refute();
    }
  }

  #close(): void {
    if (this.#name === undefined || (this.#arguments === undefined && this.#options.needsArguments)) {
      this.#refute();
      return;
    }
    this.#arguments ??= '{}';
    this.#standing = 'whole';
  }

  /** What is known to be a call ends here, however it is written on. */
  #refute(): void {
    this.#standing = this.name === undefined ? 'refuted' : 'past';
  }
}

/** Of a key that comes twice the first counts. */
function roleOf(key: unknown, { hasName, hasArguments }: { hasName: boolean; hasArguments: boolean }): 'name' | 'arguments' | 'other' {
  if (key === 'name' && !hasName) return 'name';
  return ARGUMENTS.has(key as string) && !hasArguments ? 'arguments' : 'other';
}
