/** What tests of structured answers share: small vocabularies, whether a text fits, and texts that fit, drawn at random. */
import { compileStructure } from '../../../batcher/structured/grammar-compilation.ts';
import { SpelledVocabulary } from '../../../batcher/structured/spelled-vocabulary.ts';
import { DEAD, StateTable } from '../../../batcher/structured/state-table.ts';
import type { Structure } from '../../../shared/job.ts';

export const END = 0;

/** Token 0 ends; tokens 1 to 256 are the bytes; then the words given. */
export function vocabularyOf(words: readonly string[] = []): SpelledVocabulary {
  const spelled = [
    new Uint8Array(),
    ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
    ...words.map(word => new TextEncoder().encode(word)),
  ];
  return new SpelledVocabulary({ vocabSize: spelled.length, endTokenIds: [END], tokenBytes: id => spelled[id] ?? new Uint8Array() });
}

export const BYTES = vocabularyOf();

type WithoutParam<S> = S extends { param: string } ? Omit<S, 'param'> : never;

export function tableOf(structure: WithoutParam<Structure>, vocabulary = BYTES): StateTable {
  return new StateTable(compileStructure({ ...structure, param: 'test' } as Structure, vocabulary));
}

export function schemaTable(schema: unknown): StateTable {
  return tableOf({ kind: 'schema', schema });
}

export function fits(table: StateTable, text: string): boolean {
  let state = table.start;
  for (const byte of new TextEncoder().encode(text)) {
    state = table.afterByte(state, byte);
    if (state === DEAD) return false;
  }
  return table.mayEnd(state);
}

export type Random = () => number;

export function randomFrom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const CLOSING = new Set(Array.from('"}]', character => character.charCodeAt(0)));
const LONGEST = 6_000;

/** A text that fits, byte by byte, with a liking for ends; undefined where it does not come to one. Throws where nothing can follow. */
export function randomText(table: StateTable, random: Random): string | undefined {
  const bytes: number[] = [];
  let state = table.start;
  while (bytes.length < LONGEST) {
    if (table.mustEnd(state) || (table.mayEnd(state) && random() < 0.5))
      return new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.from(bytes));
    const from = state;
    const next = Array.from({ length: 256 }, (_, byte) => byte).filter(byte => table.afterByte(from, byte) !== DEAD);
    if (next.length === 0) throw new Error(`nothing can follow ${JSON.stringify(new TextDecoder().decode(Uint8Array.from(bytes)))}`);
    const closing = next.filter(byte => CLOSING.has(byte));
    const among = closing.length > 0 && random() < 0.35 ? closing : next;
    const byte = among[Math.floor(random() * among.length)]!;
    bytes.push(byte);
    state = table.afterByte(state, byte);
  }
  return undefined;
}
