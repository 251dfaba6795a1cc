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
