/**
 * TokenMask: which tokens of the vocabulary may be chosen: bit (id % 32) of word floor(id / 32) is set for each one.
 * Whoever has a mask only reads it: it may serve many answers.
 */
export interface TokenMask {
  words: Uint32Array;
  /** Bits that are set. */
  count: number;
}

/** `row` where the mask allows, -Infinity elsewhere. Costs little both for the few tokens of a bracket and for the many of a text. */
export function copyAllowed(row: Float32Array, { words, count }: TokenMask, edited: Float32Array): void {
  const wordCount = Math.min(words.length, Math.ceil(row.length / 32));
  if (count * 2 > row.length) {
    edited.set(row);
    for (let word = 0; word < wordCount; word++) forEachBit(~words[word]!, word * 32, row.length, id => (edited[id] = -Infinity));
    edited.fill(-Infinity, Math.min(row.length, words.length * 32));
    return;
  }
  edited.fill(-Infinity);
  for (let word = 0; word < wordCount; word++) forEachBit(words[word]!, word * 32, row.length, id => (edited[id] = row[id]!));
}

/** Whether a mask has none but these tokens, which are all different. */
export function allowsOnly({ words, count }: TokenMask, ids: readonly number[]): boolean {
  return ids.filter(id => ((words[id >>> 5] ?? 0) >>> (id & 31)) & 1).length === count;
}

/** Of one token. */
export function maskOf(id: number, vocabSize: number): TokenMask {
  const words = new Uint32Array(Math.ceil(vocabSize / 32));
  words[id >>> 5] = 1 << (id & 31);
  return { words, count: 1 };
}

/** The only token of a mask; undefined where there are none or several. */
export function onlyToken({ words, count }: TokenMask): number | undefined {
  if (count !== 1) return undefined;
  const word = words.findIndex(bits => bits !== 0);
  return word * 32 + 31 - Math.clz32(words[word]!);
}

function forEachBit(bits: number, first: number, end: number, visit: (id: number) => void): void {
  let rest = bits;
  while (rest !== 0) {
    const id = first + 31 - Math.clz32(rest & -rest);
    if (id < end) visit(id);
    rest &= rest - 1;
  }
}
