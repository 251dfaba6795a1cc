/**
 * PromptText: the bytes that each token of a prompt has in its text. Joined they are exactly the text that the client sent; of a prompt that came
 * as token ids they are those of the tokens, control tokens spelled.
 */
import type { TokenBytes } from './incremental-detokenizer.ts';

const ENCODER = new TextEncoder();
const NONE = new Uint8Array();
const SPACE = 0x20;

/** `tokenBytes` spells control tokens. */
export function promptTokenBytes(tokenIds: readonly number[], tokenBytes: TokenBytes, text?: string): Uint8Array[] {
  const spelled = tokenIds.map(tokenBytes);
  if (text === undefined) return spelled;
  const whole = ENCODER.encode(text.toWellFormed());
  const pieces: Uint8Array[] = [];
  let at = 0;
  for (const [index, piece] of spelled.entries()) {
    const isLast = index === spelled.length - 1;
    const own = pieceAt(whole, at, piece) ?? (index === 0 ? NONE : undefined);
    if (own === undefined || (isLast && at + own.length !== whole.length)) {
      // The tokens stand for other characters than the client wrote (the vocabulary has none for them): the text is not theirs to divide.
      return spelled.map((_, i) => (i === 0 ? whole : NONE));
    }
    pieces.push(own);
    at += own.length;
  }
  return pieces;
}

/** The piece, if it stands there; without its space, if the tokenizer put that in front; undefined for a token that the text does not have. */
function pieceAt(whole: Uint8Array, at: number, piece: Uint8Array): Uint8Array | undefined {
  if (startsWith(whole, at, piece)) return piece;
  const bare = piece[0] === SPACE ? piece.subarray(1) : undefined;
  return bare !== undefined && startsWith(whole, at, bare) ? bare : undefined;
}

function startsWith(whole: Uint8Array, at: number, piece: Uint8Array): boolean {
  for (let i = 0; i < piece.length; i += 1) if (whole[at + i] !== piece[i]) return false;
  return true;
}
