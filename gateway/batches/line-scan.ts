/** LineScan: goes through a file line by line, a piece at a time, from wherever it stood before. */
import { joinedBytes } from '../joined-bytes.ts';

const NEWLINE = 10;

export interface ScannedLine {
  /** From 1, blank ones counted. */
  number: number;
  /** First byte in the file. */
  at: number;
  /** Without the line's end. */
  bytes: Uint8Array;
}

export interface ScanState {
  /** First byte of the next line. */
  at: number;
  /** Lines before it. */
  lines: number;
}

/** The file as it can be read here. */
export interface Pieces {
  pieceFrom(place: number): Uint8Array | undefined;
}

/**
 * The lines that lie in about `budget` bytes from `state` on, and where to go on; `isEnd` when that was the last of the file. A line that is
 * longer than `longest` is given as far as that.
 */
export function scanLines(
  pieces: Pieces,
  state: ScanState,
  bounds: { budget: number; longest: number },
): { lines: ScannedLine[]; state: ScanState; isEnd: boolean } {
  const lines: ScannedLine[] = [];
  let { at, lines: count } = state;
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  let place = at;
  const push = (part: Uint8Array) => {
    const room = bounds.longest + 1 - heldBytes;
    if (room > 0) held.push(part.subarray(0, room));
    heldBytes += part.length;
  };
  for (;;) {
    const piece = pieces.pieceFrom(place);
    if (piece === undefined) {
      if (heldBytes > 0) lines.push({ number: ++count, at, bytes: joinedBytes(held) });
      return { lines, state: { at: place, lines: count }, isEnd: true };
    }
    let from = 0;
    for (let end = piece.indexOf(NEWLINE, from); end !== -1; end = piece.indexOf(NEWLINE, from)) {
      push(piece.subarray(from, end));
      lines.push({ number: ++count, at, bytes: joinedBytes(held) });
      [held, heldBytes, from] = [[], 0, end + 1];
      at = place + from;
    }
    push(piece.subarray(from));
    place += piece.length;
    // In the middle of a line it goes on; what is held is read again by nobody.
    const isMuch = place - state.at >= bounds.budget;
    if (isMuch && (heldBytes === 0 || lines.length > 0)) return { lines, state: { at, lines: count }, isEnd: false };
  }
}
