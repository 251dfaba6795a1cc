/** SchemaReferences: where the references of one schema lead: to its root or to a part of it by JSON pointer or anchor. */
import { GrammarError } from '../grammar.ts';
import { asSchema, below, isRecord, type JsonSchema, type Located } from './schema-keywords.ts';

/** A few references that are followed again and again within each other would otherwise be followed without end. */
const MAX_FOLLOWED = 5_000;

export class SchemaReferences {
  readonly #root: JsonSchema;
  #followedCount = 0;
  #anchors: Map<string, Located> | undefined;

  constructor(root: JsonSchema) {
    this.#root = root;
  }

  /** Throws GrammarError at `path`, where the reference stands. */
  resolve(reference: string, path: string): Located {
    if (++this.#followedCount > MAX_FOLLOWED) throw new GrammarError(`more than ${MAX_FOLLOWED} references are to be followed`, path);
    if (!reference.startsWith('#')) throw new GrammarError(`the reference ${JSON.stringify(reference)} leads out of the schema`, path);
    const fragment = decoded(reference.slice(1), path);
    if (fragment !== '' && !fragment.startsWith('/')) return this.#anchor(fragment, path);
    let target: unknown = this.#root;
    let where = '#';
    for (const part of fragment.split('/').slice(1)) {
      const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
      const isThere = (isRecord(target) || Array.isArray(target)) && Object.hasOwn(target, key);
      if (!isThere) throw new GrammarError(`the reference ${JSON.stringify(reference)} leads nowhere`, path);
      target = (target as Record<string, unknown>)[key];
      where = below(where, key);
    }
    return asSchema(target, where);
  }

  #anchor(name: string, path: string): Located {
    this.#anchors ??= collectAnchors(this.#root);
    const found = this.#anchors.get(name);
    if (found === undefined) throw new GrammarError(`there is no $anchor ${JSON.stringify(name)}`, path);
    return found;
  }
}

function decoded(fragment: string, path: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    throw new GrammarError('the reference is not well-formed', path);
  }
}

function collectAnchors(root: JsonSchema): Map<string, Located> {
  const anchors = new Map<string, Located>();
  const visit = (value: unknown, path: string): void => {
    if (Array.isArray(value)) {
      for (const [index, inner] of value.entries()) visit(inner, below(path, index));
    } else if (isRecord(value)) {
      if (typeof value.$anchor === 'string') anchors.set(value.$anchor, { schema: value, path });
      for (const [key, inner] of Object.entries(value)) visit(inner, below(path, key));
    }
  };
  visit(root, '#');
  return anchors;
}
