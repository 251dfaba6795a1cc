/** TextDigest: the digest of a text, as hexadecimal digits. */
import { toHex } from './hex.ts';

const encoder = new TextEncoder();

export async function textDigest(text: string, algorithm: 'SHA-256' | 'SHA-1' = 'SHA-256'): Promise<string> {
  return toHex(new Uint8Array(await crypto.subtle.digest(algorithm, encoder.encode(text))));
}
