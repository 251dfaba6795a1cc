/**
 * SafetensorsFile: an open safetensors file: its tensor directory in memory, its numbers read on demand, as float32. Every length and offset
 * of the header is checked against the file before it is believed. Close it when done (`await using` does).
 *
 * Source: the safetensors format: 8 bytes length, a JSON directory, then the tensors, little-endian and row by row.
 */
import type { FileHandle } from 'node:fs/promises';
import { basename } from 'node:path';
import { bfloatsToFloats, bytesToFloats, halvesToFloats } from './float-format.ts';
import { ModelError } from './model-error.ts';
import type { Scratch } from './scratch.ts';
import { openSource } from './source-file.ts';

export interface SafeTensor {
  name: string;
  type: keyof typeof TYPES;
  dimensions: readonly number[];
  elementCount: number;
  /** From the start of the file. */
  offset: number;
}

const TYPES = {
  F32: { bytes: 4, toFloats: bytesToFloats },
  F16: { bytes: 2, toFloats: halvesToFloats },
  BF16: { bytes: 2, toFloats: bfloatsToFloats },
} as const;

const LENGTH_BYTES = 8;
/** The format's own bound. */
const MAX_HEADER_BYTES = 100_000_000;
const MAX_DIMENSIONS = 8;

export class SafetensorsFile implements AsyncDisposable {
  readonly fileName: string;
  /** Those of number types that can be read; others are left out. */
  readonly tensors: ReadonlyMap<string, SafeTensor>;
  readonly #handle: FileHandle;

  private constructor(fileName: string, handle: FileHandle, tensors: ReadonlyMap<string, SafeTensor>) {
    this.fileName = fileName;
    this.#handle = handle;
    this.tensors = tensors;
  }

  /** Throws a ModelError that says what is wrong with the file. */
  static async open(path: string): Promise<SafetensorsFile> {
    const fileName = basename(path);
    return openSource(path, async handle => new SafetensorsFile(fileName, handle, await readDirectory(handle, fileName)));
  }

  /** Throws a ModelError that names the tensor when it is not there or has other dimensions. */
  require(name: string, dimensions: readonly number[]): SafeTensor {
    const tensor = this.tensors.get(name);
    if (tensor === undefined) throw new ModelError(`${this.fileName}: there is no tensor ${name} of a type that can be read.`);
    if (tensor.dimensions.join() !== dimensions.join()) {
      throw new ModelError(
        `${this.fileName}: tensor ${name} has the dimensions ${tensor.dimensions.join(' x ')} instead of ${dimensions.join(' x ')}.`,
      );
    }
    return tensor;
  }

  /** Valid until the next call with the same scratch. */
  async floats(tensor: SafeTensor, first: number, count: number, scratch: Scratch): Promise<Float32Array> {
    const { bytes: elementBytes, toFloats } = TYPES[tensor.type];
    const bytes = scratch.bytes('source', count * elementBytes);
    await readFully(this.#handle, { into: bytes, position: tensor.offset + first * elementBytes, fileName: this.fileName });
    return toFloats(bytes, count, scratch);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }
}

async function readDirectory(handle: FileHandle, fileName: string): Promise<Map<string, SafeTensor>> {
  const { size } = await handle.stat();
  const damaged = (why: string) => new ModelError(`${fileName}: is no safetensors file, or a damaged one (${why}).`);
  if (size < LENGTH_BYTES) throw damaged('it has no header');
  const lengthBytes = new Uint8Array(LENGTH_BYTES);
  await readFully(handle, { into: lengthBytes, position: 0, fileName });
  const headerBytes = Number(new DataView(lengthBytes.buffer).getBigUint64(0, true));
  if (headerBytes > Math.min(MAX_HEADER_BYTES, size - LENGTH_BYTES)) throw damaged('its header is longer than the file');
  const header = new Uint8Array(headerBytes);
  await readFully(handle, { into: header, position: LENGTH_BYTES, fileName });
  let entries: unknown;
  try {
    entries = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(header));
  } catch {
    throw damaged('its header is no JSON');
  }
  if (typeof entries !== 'object' || entries === null) throw damaged('its header is no JSON object');
  const tensors = new Map<string, SafeTensor>();
  const dataStart = LENGTH_BYTES + headerBytes;
  for (const [name, entry] of Object.entries(entries)) {
    if (name === '__metadata__') continue;
    const { dtype, shape, data_offsets: offsets } = (entry ?? {}) as Record<string, unknown>;
    if (typeof dtype !== 'string' || !isCounts(shape) || shape.length > MAX_DIMENSIONS || !isCounts(offsets) || offsets.length !== 2) {
      throw damaged(`the entry of ${name} is incomplete`);
    }
    if (!Object.hasOwn(TYPES, dtype)) continue;
    const type = dtype as SafeTensor['type'];
    const elementCount = shape.reduce((product, dimension) => product * dimension, 1);
    const [begin, end] = offsets as [number, number];
    if (end - begin !== elementCount * TYPES[type].bytes || dataStart + end > size) throw damaged(`${name} lies outside of it`);
    tensors.set(name, { name, type, dimensions: shape, elementCount, offset: dataStart + begin });
  }
  return tensors;
}

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every(one => Number.isSafeInteger(one) && one >= 0);
}

async function readFully(handle: FileHandle, read: { into: Uint8Array; position: number; fileName: string }): Promise<void> {
  const { into, position, fileName } = read;
  let done = 0;
  while (done < into.length) {
    const { bytesRead } = await handle.read(into, done, into.length - done, position + done);
    if (bytesRead === 0) throw new ModelError(`${fileName}: ends too early.`);
    done += bytesRead;
  }
}
