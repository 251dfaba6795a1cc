/** GgufWriter: small GGUF files for tests, written from plain data; the counterpart of the reader, by the same specification. */
import { writeFile } from 'node:fs/promises';

export type MetadataValue =
  | { u32: number }
  | { f32: number }
  | { bool: boolean }
  | { text: string }
  | { texts: string[] }
  | { f32s: number[] }
  | { i32s: number[] };

export interface TensorSpec {
  name: string;
  /** Columns first, as in the file. */
  dimensions: number[];
  type: number;
  data: Uint8Array;
}

export interface GgufSpec {
  metadata: Record<string, MetadataValue>;
  tensors: TensorSpec[];
  version?: number;
}

const ALIGNMENT = 32;

export async function writeGguf(path: string, spec: GgufSpec): Promise<string> {
  await writeFile(path, ggufBytes(spec));
  return path;
}

export function ggufBytes({ metadata, tensors, version = 3 }: GgufSpec): Buffer {
  const header: Buffer[] = [Buffer.from('GGUF'), u32(version), u64(tensors.length), u64(Object.keys(metadata).length)];
  for (const [key, value] of Object.entries(metadata)) header.push(text(key), ...metadataValue(value));
  let offset = 0;
  for (const { name, dimensions, type, data } of tensors) {
    header.push(text(name), u32(dimensions.length), ...dimensions.map(u64), u32(type), u64(offset));
    offset += padded(data.length);
  }
  const head = Buffer.concat(header);
  const parts: Uint8Array[] = [head, Buffer.alloc(padded(head.length) - head.length)];
  for (const { data } of tensors) parts.push(data, Buffer.alloc(padded(data.length) - data.length));
  return Buffer.concat(parts);
}

function metadataValue(value: MetadataValue): Buffer[] {
  if ('u32' in value) return [u32(4), u32(value.u32)];
  if ('f32' in value) return [u32(6), f32(value.f32)];
  if ('bool' in value) return [u32(7), Buffer.from([value.bool ? 1 : 0])];
  if ('text' in value) return [u32(8), text(value.text)];
  if ('texts' in value) return [u32(9), u32(8), u64(value.texts.length), ...value.texts.map(text)];
  if ('f32s' in value) return [u32(9), u32(6), u64(value.f32s.length), ...value.f32s.map(f32)];
  return [u32(9), u32(5), u64(value.i32s.length), ...value.i32s.map(i32)];
}

function padded(length: number): number {
  return Math.ceil(length / ALIGNMENT) * ALIGNMENT;
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function i32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function f32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}
