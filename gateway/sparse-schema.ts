/**
 * SparseSchema: the schema of a body that may have many fields and has few: those that it has not are not looked at, which is most of the work
 * in a runtime where zod may make no code of its own. What it says of a body is what the whole schema says.
 */
import type { z } from 'zod';

/** Combinations of fields that are kept; bodies of others are told by the whole schema. */
const MAX_KEPT = 256;

export class SparseSchema<S extends z.ZodObject> {
  readonly #whole: S;
  readonly #names: readonly string[];
  /** Fields whose absence is for them to judge. */
  readonly #needed: ReadonlySet<string>;
  readonly #kept = new Map<string, S>();

  constructor(whole: S) {
    this.#whole = whole;
    this.#names = Object.keys(whole.shape);
    this.#needed = new Set(this.#names.filter(name => whole.shape[name]!._zod.optin !== 'optional'));
  }

  safeParse(body: Readonly<Record<string, unknown>>): z.ZodSafeParseResult<z.output<S>> {
    return this.#of(body).safeParse(body, { reportInput: true });
  }

  /** With the checks between fields that the whole schema has. */
  #of(body: Readonly<Record<string, unknown>>): S {
    const names = this.#names.filter(name => body[name] !== undefined || this.#needed.has(name));
    const key = names.join();
    let schema = this.#kept.get(key);
    if (schema === undefined) {
      if (this.#kept.size >= MAX_KEPT) return this.#whole;
      const shape = Object.fromEntries(names.map(name => [name, this.#whole.shape[name]!]));
      schema = this.#whole.clone({ ...this.#whole.def, shape });
      this.#kept.set(key, schema);
    }
    return schema;
  }
}
