/** Hex: bytes as two lower-case hexadecimal digits each. By a table, since a request needs it several times. */

const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

export function toHex(bytes: Uint8Array): string {
  let hex = '';
  for (const byte of bytes) hex += DIGITS[byte];
  return hex;
}
