/** LogprobEntry: a sampled token's log-probabilities as clients see them, each token with its text and bytes. */
import type { TokenLogprob } from '../../shared/token-event.ts';
import type { SampledLogprob } from '../sampling/row-logprobs.ts';
import type { TokenBytes } from './incremental-detokenizer.ts';

const STRICT = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Text of a token alone. Bytes that are no whole characters are written as OpenAI does, \xf0\x9f, so that no U+FFFD pretends to be text. */
export function tokenText(bytes: Uint8Array): string {
  try {
    return STRICT.decode(bytes);
  } catch {
    return Array.from(bytes, byte => (byte < 0x80 ? String.fromCharCode(byte) : `\\x${byte.toString(16)}`)).join('');
  }
}

/** `spelled` names tokens that are no text, such as the one that ends an answer; their bytes stay none. */
export function logprobEntry(
  tokenId: number,
  { logprob, top }: SampledLogprob,
  { tokenBytes, spelled = tokenBytes }: { tokenBytes: TokenBytes; spelled?: TokenBytes | undefined },
): TokenLogprob {
  const named = (id: number, value: number) => {
    const bytes = tokenBytes(id);
    return { token: tokenText(bytes.length > 0 ? bytes : spelled(id)), tokenId: id, logprob: value, bytes: Array.from(bytes) };
  };
  return { ...named(tokenId, logprob), top: top.map(one => named(one.tokenId, one.logprob)) };
}
