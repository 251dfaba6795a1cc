/**
 * GgufFile: an open GGUF file: its metadata and tensor directory in memory, its tensor data read on demand.
 * Every count, length and offset of the header is checked against the file's size before it is believed, so that a truncated or
 * hostile file ends in a ModelError and never in an allocation of its choosing. Close it when done (`await using` does).
 *
 * Source: the GGUF specification, versions 2 and 3, little-endian.
 */
import { readSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { basename } from 'node:path';
import { ModelError } from './model-error.ts';
import { openSource } from './source-file.ts';
import { type TensorType, tensorTypeOf } from './tensor-type.ts';

export type GgufValue = string | number | bigint | boolean | GgufValue[];

export interface GgufTensor {
  name: string;
  type: TensorType;
  /** Elements of a row: the dimension that lies together in the file. */
  columns: number;
  /** Product of the other dimensions. */
  rows: number;
  dimensionCount: number;
  /** From the start of the file. */
  offset: number;
  byteLength: number;
}

export interface GgufFile extends AsyncDisposable {
  readonly path: string;
  /** For messages: the path without its folders. */
  readonly fileName: string;
  readonly byteLength: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  /** Bytes of whole rows of a tensor, into a buffer that the caller owns. */
  readRows(tensor: GgufTensor, firstRow: number, rowCount: number, into: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

const MAGIC = 0x46554747;
const WINDOW_BYTES = 1 << 20;
/** Arrays of arrays exist in the format; no known file nests deeper than two. */
const MAX_ARRAY_DEPTH = 4;
const MAX_DIMENSIONS = 4;

/** Smallest number of bytes that one value of each metadata type can take. */
const VALUE_BYTES = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8] as const;
const STRING_TYPE = 8;
const ARRAY_TYPE = 9;

export async function openGguf(path: string): Promise<GgufFile> {
  const fileName = basename(path);
  return openSource(path, async handle => {
    const stat = await handle.stat();
    if (!stat.isFile()) throw new ModelError(`${path}: is not a file; a model is one GGUF file.`);
    const header = readHeader(new HeaderCursor(handle.fd, stat.size, fileName), fileName);
    return new OpenGguf({ path, fileName, handle, byteLength: stat.size, ...header });
  });
}

class OpenGguf implements GgufFile {
  readonly path: string;
  readonly fileName: string;
  readonly byteLength: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  readonly #handle: FileHandle;

  constructor(parts: Header & { path: string; fileName: string; handle: FileHandle; byteLength: number }) {
    this.path = parts.path;
    this.fileName = parts.fileName;
    this.byteLength = parts.byteLength;
    this.metadata = parts.metadata;
    this.tensors = parts.tensors;
    this.#handle = parts.handle;
  }

  async readRows(tensor: GgufTensor, firstRow: number, rowCount: number, into: Uint8Array): Promise<void> {
    const rowBytes = tensor.byteLength / tensor.rows;
    const length = rowCount * rowBytes;
    let done = 0;
    while (done < length) {
      const { bytesRead } = await this.#handle.read(into, done, length - done, tensor.offset + firstRow * rowBytes + done);
      if (bytesRead === 0) throw new ModelError(`${this.fileName}: changed while it was read; tensor ${tensor.name} ends too early.`);
      done += bytesRead;
    }
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

interface Header {
  metadata: Map<string, GgufValue>;
  tensors: Map<string, GgufTensor>;
}

function readHeader(cursor: HeaderCursor, fileName: string): Header {
  if (cursor.remaining < 4 || cursor.u32() !== MAGIC) {
    throw new ModelError(`${fileName}: is not a GGUF file (its first four bytes are not "GGUF"); models are read from GGUF files only.`);
  }
  const version = cursor.u32();
  if (version !== 2 && version !== 3) {
    const found = version % 0x1000000 === 0 ? 'is in big-endian order' : `has version ${version}`;
    throw new ModelError(`${fileName}: ${found}; supported are little-endian GGUF files of version 2 and 3.`);
  }
  // A tensor's entry takes at least 24 bytes, a metadata entry at least 13.
  const tensorCount = cursor.count(24, 'tensors');
  const metadataCount = cursor.count(13, 'metadata entries');
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < metadataCount; i++) {
    const key = cursor.string();
    if (metadata.has(key)) throw new ModelError(`${fileName}: has the metadata key ${key} twice.`);
    metadata.set(key, readValue(cursor, cursor.u32(), 0));
  }
  const alignment = alignmentOf(metadata, fileName);
  const entries = Array.from({ length: tensorCount }, () => readTensorEntry(cursor, fileName));
  const dataStart = Math.ceil(cursor.position / alignment) * alignment;
  const tensors = new Map<string, GgufTensor>();
  for (const { name, type, dimensions, offset } of entries) {
    const columns = dimensions[0] ?? 1;
    const rows = dimensions.slice(1).reduce((product, dimension) => product * dimension, 1);
    const byteLength = ((columns * rows) / type.blockElements) * type.blockBytes;
    if (columns % type.blockElements !== 0) {
      throw new ModelError(
        `${fileName}: tensor ${name} has ${columns} columns, no multiple of the ${type.blockElements} that ${type.name} needs.`,
      );
    }
    if (tensors.has(name)) throw new ModelError(`${fileName}: has the tensor ${name} twice.`);
    if (!(offset + byteLength <= cursor.fileBytes - dataStart)) {
      throw new ModelError(
        `${fileName}: is truncated: tensor ${name} ends at byte ${dataStart + offset + byteLength} and the file at ${cursor.fileBytes}.`,
      );
    }
    tensors.set(name, { name, type, columns, rows, dimensionCount: dimensions.length, offset: dataStart + offset, byteLength });
  }
  return { metadata, tensors };
}

function alignmentOf(metadata: ReadonlyMap<string, GgufValue>, fileName: string): number {
  const alignment = metadata.get('general.alignment') ?? 32;
  if (typeof alignment !== 'number' || !Number.isInteger(alignment) || alignment < 1 || alignment > 1 << 20) {
    throw new ModelError(`${fileName}: general.alignment is ${String(alignment)}; it must be a number of bytes from 1 to 1048576.`);
  }
  return alignment;
}

function readTensorEntry(cursor: HeaderCursor, fileName: string) {
  const name = cursor.string();
  const dimensionCount = cursor.u32();
  if (dimensionCount < 1 || dimensionCount > MAX_DIMENSIONS) {
    throw new ModelError(`${fileName}: tensor ${name} has ${dimensionCount} dimensions; 1 to ${MAX_DIMENSIONS} are possible.`);
  }
  const dimensions = Array.from({ length: dimensionCount }, () => cursor.size());
  if (dimensions.includes(0)) throw new ModelError(`${fileName}: tensor ${name} has no elements.`);
  const type = tensorTypeOf(cursor.u32(), name, fileName);
  return { name, type, dimensions, offset: cursor.size() };
}

function readValue(cursor: HeaderCursor, type: number, depth: number): GgufValue {
  switch (type) {
    case 0:
      return cursor.u8();
    case 1:
      return cursor.i8();
    case 2:
      return cursor.u16();
    case 3:
      return cursor.i16();
    case 4:
      return cursor.u32();
    case 5:
      return cursor.i32();
    case 6:
      return cursor.f32();
    case 7:
      return cursor.u8() !== 0;
    case STRING_TYPE:
      return cursor.string();
    case ARRAY_TYPE:
      return readArray(cursor, depth);
    case 10:
      return narrow(cursor.u64());
    case 11:
      return narrow(cursor.i64());
    case 12:
      return cursor.f64();
    default:
      return cursor.fail(`metadata type ${type} is unknown`);
  }
}

function readArray(cursor: HeaderCursor, depth: number): GgufValue[] {
  const elementType = cursor.u32();
  const elementBytes = VALUE_BYTES[elementType];
  if (elementBytes === undefined) return cursor.fail(`metadata type ${elementType} is unknown`);
  if (depth >= MAX_ARRAY_DEPTH) return cursor.fail('metadata arrays are nested too deep');
  const count = cursor.count(elementBytes, 'array elements');
  const values: GgufValue[] = [];
  for (let i = 0; i < count; i++) values.push(readValue(cursor, elementType, depth + 1));
  return values;
}

function narrow(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** Reads the header front to back through a window on the file; the end of the file is the only bound that it trusts. */
class HeaderCursor {
  readonly fileBytes: number;
  readonly #fd: number;
  readonly #fileName: string;
  #window: Buffer = Buffer.alloc(0);
  #windowStart = 0;
  #position = 0;

  constructor(fd: number, fileBytes: number, fileName: string) {
    this.#fd = fd;
    this.fileBytes = fileBytes;
    this.#fileName = fileName;
  }

  get position(): number {
    return this.#position;
  }

  get remaining(): number {
    return this.fileBytes - this.#position;
  }

  fail(what: string): never {
    throw new ModelError(`${this.#fileName}: is damaged at byte ${this.#position}: ${what}.`);
  }

  u8(): number {
    const at = this.#take(1);
    return this.#window.readUInt8(at);
  }
  i8(): number {
    const at = this.#take(1);
    return this.#window.readInt8(at);
  }
  u16(): number {
    const at = this.#take(2);
    return this.#window.readUInt16LE(at);
  }
  i16(): number {
    const at = this.#take(2);
    return this.#window.readInt16LE(at);
  }
  u32(): number {
    const at = this.#take(4);
    return this.#window.readUInt32LE(at);
  }
  i32(): number {
    const at = this.#take(4);
    return this.#window.readInt32LE(at);
  }
  f32(): number {
    const at = this.#take(4);
    return this.#window.readFloatLE(at);
  }
  f64(): number {
    const at = this.#take(8);
    return this.#window.readDoubleLE(at);
  }
  u64(): bigint {
    const at = this.#take(8);
    return this.#window.readBigUInt64LE(at);
  }
  i64(): bigint {
    const at = this.#take(8);
    return this.#window.readBigInt64LE(at);
  }

  /** A 64-bit size or offset. */
  size(): number {
    const value = Number(this.u64());
    return Number.isSafeInteger(value) ? value : this.fail('a size is beyond any file');
  }

  /** A number of things that each take at least so many of the bytes that are left. */
  count(leastBytesEach: number, what: string): number {
    const value = this.size();
    if (value * leastBytesEach > this.remaining) {
      throw new ModelError(
        `${this.#fileName}: is truncated or damaged: it announces ${value} ${what} and ends ${this.remaining} bytes later.`,
      );
    }
    return value;
  }

  string(): string {
    const length = this.count(1, 'characters');
    const at = this.#take(length);
    return this.#window.toString('utf8', at, at + length);
  }

  /** Where in the window the next bytes lie, all of them; nothing is allocated for a value. */
  #take(length: number): number {
    if (length > this.remaining)
      throw new ModelError(`${this.#fileName}: is truncated: its header goes on past the end at byte ${this.fileBytes}.`);
    let start = this.#position - this.#windowStart;
    if (start + length > this.#window.length) {
      this.#fill(Math.max(length, WINDOW_BYTES));
      start = 0;
    }
    this.#position += length;
    return start;
  }

  #fill(length: number): void {
    const window = Buffer.allocUnsafe(Math.min(length, this.remaining));
    let done = 0;
    while (done < window.length) {
      const count = readSync(this.#fd, window, done, window.length - done, this.#position + done);
      if (count === 0) throw new ModelError(`${this.#fileName}: became shorter while it was read.`);
      done += count;
    }
    this.#window = window;
    this.#windowStart = this.#position;
  }
}
