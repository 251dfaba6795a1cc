/** ZipMember: one file out of a zip archive, inflated as a stream, without unpacking the others. Source: PKWARE's APPNOTE. */
import { createReadStream, createWriteStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createInflateRaw } from 'node:zlib';

const END_SIGNATURE = 0x06054b50;
const ENTRY_SIGNATURE = 0x02014b50;
const LOCAL_SIGNATURE = 0x04034b50;
const END_BYTES = 22;
/** The end record may be followed by a comment of this length. */
const MAX_COMMENT_BYTES = 0xffff;
const STORED = 0;
const DEFLATED = 8;

interface Entry {
  method: number;
  compressedBytes: number;
  localOffset: number;
}

export async function extractMember(
  archivePath: string,
  memberName: string,
  target: { path: string; onBytes: (doneBytes: number) => void },
): Promise<void> {
  const { entry, dataOffset } = await locate(archivePath, memberName);
  if (entry.method !== STORED && entry.method !== DEFLATED)
    throw new Error(`${memberName} is packed by method ${entry.method}, which is unknown`);
  const packed = createReadStream(archivePath, { start: dataOffset, end: dataOffset + entry.compressedBytes - 1 });
  let done = 0;
  const counted = new Transform({
    transform(piece: Buffer, _encoding, next) {
      done += piece.length;
      target.onBytes(done);
      next(null, piece);
    },
  });
  const output = createWriteStream(target.path, { flush: true });
  if (entry.method === DEFLATED) await pipeline(packed, createInflateRaw(), counted, output);
  else await pipeline(packed, counted, output);
}

async function locate(archivePath: string, memberName: string): Promise<{ entry: Entry; dataOffset: number }> {
  await using archive = await open(archivePath, 'r');
  const entry = findEntry(await readDirectory(archive, archivePath), memberName);
  if (entry === undefined) throw new Error(`${archivePath} holds no ${memberName}`);
  const local = await readAt(archive, entry.localOffset, 30);
  if (local.readUInt32LE(0) !== LOCAL_SIGNATURE) throw new Error(`${archivePath} is damaged`);
  return { entry, dataOffset: entry.localOffset + 30 + local.readUInt16LE(26) + local.readUInt16LE(28) };
}

async function readDirectory(archive: FileHandle, archivePath: string): Promise<Buffer> {
  const { size } = await archive.stat();
  const tailBytes = Math.min(size, END_BYTES + MAX_COMMENT_BYTES);
  const tail = await readAt(archive, size - tailBytes, tailBytes);
  for (let at = tail.length - END_BYTES; at >= 0; at--) {
    if (tail.readUInt32LE(at) === END_SIGNATURE) return readAt(archive, tail.readUInt32LE(at + 16), tail.readUInt32LE(at + 12));
  }
  throw new Error(`${archivePath} is no zip archive`);
}

function findEntry(directory: Buffer, memberName: string): Entry | undefined {
  for (let at = 0; at + 46 <= directory.length && directory.readUInt32LE(at) === ENTRY_SIGNATURE; ) {
    const nameBytes = directory.readUInt16LE(at + 28);
    const name = directory.toString('utf8', at + 46, at + 46 + nameBytes);
    if (name === memberName) {
      return {
        method: directory.readUInt16LE(at + 10),
        compressedBytes: directory.readUInt32LE(at + 20),
        localOffset: directory.readUInt32LE(at + 42),
      };
    }
    at += 46 + nameBytes + directory.readUInt16LE(at + 30) + directory.readUInt16LE(at + 32);
  }
  return undefined;
}

async function readAt(archive: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await archive.read(buffer, 0, length, position);
  if (bytesRead < length) throw new Error('the archive is truncated');
  return buffer;
}
