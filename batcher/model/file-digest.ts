/** FileDigest: SHA-256 of a file, read in pieces through one buffer. */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';

const PIECE_BYTES = 1 << 20;

/** In hexadecimal. */
export async function sha256OfFile(path: string, onBytes?: (doneBytes: number) => void): Promise<string> {
  await using file = await open(path, 'r');
  const hash = createHash('sha256');
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  for (let done = 0; ; ) {
    const { bytesRead } = await file.read(piece, 0, piece.length, done);
    if (bytesRead === 0) return hash.digest('hex');
    hash.update(piece.subarray(0, bytesRead));
    done += bytesRead;
    onBytes?.(done);
  }
}
