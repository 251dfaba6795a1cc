/**
 * ByteAlphabet: the 256 characters under which byte-level vocabularies write bytes, so that every token is readable text.
 * Source: GPT-2's encoder: printable Latin-1 characters stand for themselves, the others for U+0100 onwards in their order.
 */
const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = (() => {
  const map = new Map<string, number>();
  const isPrintable = (byte: number): boolean => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) map.set(String.fromCharCode(isPrintable(byte) ? byte : next++), byte);
  return map;
})();

const CHARACTER_OF_BYTE: readonly string[] = Array.from(BYTE_OF_CHARACTER.keys());

export function characterOfByte(byte: number): string {
  return CHARACTER_OF_BYTE[byte]!;
}

/** The bytes that a token of a byte-level vocabulary stands for; a character outside the alphabet stands for its own UTF-8. */
export function bytesOfToken(token: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of token) {
    const byte = BYTE_OF_CHARACTER.get(character);
    if (byte === undefined) bytes.push(...new TextEncoder().encode(character));
    else bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}

/**
 * Matches the characters that a vocabulary cannot write, since it has no token for one of their bytes (vocabularies made from text
 * often lack control characters and unassigned planes); undefined when it can write all. Merging would drop that byte only and leave
 * the others behind. Bytes past a character's first are in every vocabulary and not looked at.
 */
export function unwritableCharacters(tokens: ReadonlyMap<string, number>): RegExp | undefined {
  const ranges: string[] = [];
  for (const [character, byte] of BYTE_OF_CHARACTER) {
    if (tokens.has(character)) continue;
    const range = rangeOfFirstByte(byte);
    if (range !== undefined) ranges.push(`\\u{${range[0].toString(16)}}-\\u{${range[1].toString(16)}}`);
  }
  return ranges.length === 0 ? undefined : new RegExp(`[${ranges.join('')}]`, 'gu');
}

/** The code points whose UTF-8 starts with the byte; undefined for bytes that start none. */
function rangeOfFirstByte(byte: number): readonly [first: number, last: number] | undefined {
  if (byte < 0x80) return [byte, byte];
  if (byte >= 0xc2 && byte <= 0xdf) return [(byte & 0x1f) << 6, ((byte & 0x1f) << 6) | 0x3f];
  if (byte >= 0xe0 && byte <= 0xef) return [Math.max((byte & 0x0f) << 12, 0x800), ((byte & 0x0f) << 12) | 0xfff];
  if (byte >= 0xf0 && byte <= 0xf4) return [Math.max((byte & 0x07) << 18, 0x10000), Math.min(((byte & 0x07) << 18) | 0x3ffff, 0x10ffff)];
  return undefined;
}
