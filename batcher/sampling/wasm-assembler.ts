/**
 * WasmAssembler: just enough of WebAssembly's binary format (core specification 2.0, chapter 5) to write a few vector loops by hand, so that
 * they need no compiler and no binary file in the repository. It checks nothing; WebAssembly.Module validates what comes out.
 */

/** Encoded instructions. */
export type Code = readonly number[];

/** Instructions one after the other. */
export function code(...parts: readonly Code[]): Code {
  return parts.flat();
}

const VALUE = { i32: 0x7f, f32: 0x7d, f64: 0x7c, v128: 0x7b } as const;
type ValueType = keyof typeof VALUE;

export interface WasmFunction {
  name: string;
  params: readonly ValueType[];
  result?: ValueType;
  /** Locals after the parameters. */
  locals: readonly ValueType[];
  body: Code;
}

function unsigned(value: number): number[] {
  const bytes: number[] = [];
  let rest = value >>> 0;
  while (rest > 0x7f) {
    bytes.push((rest & 0x7f) | 0x80);
    rest >>>= 7;
  }
  bytes.push(rest);
  return bytes;
}

function signed(value: number): number[] {
  const bytes: number[] = [];
  let rest = value | 0;
  while (rest < -64 || rest > 63) {
    bytes.push((rest & 0x7f) | 0x80);
    rest >>= 7;
  }
  bytes.push(rest & 0x7f);
  return bytes;
}

const vector = (opcode: number): Code => [0xfd, ...unsigned(opcode)];
const memory = (opcode: Code, offset: number): Code => [...opcode, 0, ...unsigned(offset)];
const VOID = 0x40;

/** Instructions under their own names; operands are pushed by the code before them. */
export const op = {
  get: (local: number): Code => [0x20, ...unsigned(local)],
  set: (local: number): Code => [0x21, ...unsigned(local)],
  tee: (local: number): Code => [0x22, ...unsigned(local)],
  i32: (value: number): Code => [0x41, ...signed(value)],
  i32Add: [0x6a],
  i32Sub: [0x6b],
  i32And: [0x71],
  i32ShiftLeft: [0x74],
  i32ShiftRight: [0x76],
  i32Less: [0x49],
  i32Store: (offset: number): Code => memory([0x36], offset),
  f32Load: (offset: number): Code => memory([0x2a], offset),
  f32Store: (offset: number): Code => memory([0x38], offset),
  f64Store: (offset: number): Code => memory([0x39], offset),
  f32GreaterEqual: [0x60],
  f32Max: [0x97],
  f64Add: [0xa0],
  /** Runs `body` once, and again while the condition that it leaves on the stack is not zero. */
  loop: (body: Code): Code => [0x03, VOID, ...body, 0x0d, 0, 0x0b],
  /** Runs `body` when the condition on the stack is not zero. */
  when: (body: Code): Code => [0x04, VOID, ...body, 0x0b],
  load: (offset: number): Code => memory(vector(0x00), offset),
  store: (offset: number): Code => memory(vector(0x0b), offset),
  f64x2Zero: [...vector(0x0c), ...new Array<number>(16).fill(0)] as Code,
  f32x4Splat: vector(0x13),
  f32x4Lane: (lane: number): Code => [...vector(0x1f), lane],
  f64x2Lane: (lane: number): Code => [...vector(0x21), lane],
  /** Two operands, the same vector twice: its upper two float32, moved down. */
  upperHalf: [...vector(0x0d), 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15] as Code,
  f32x4Greater: vector(0x44),
  f32x4GreaterEqual: vector(0x46),
  and: vector(0x4e),
  or: vector(0x50),
  anyTrue: vector(0x53),
  promoteLow: vector(0x5f),
  bitmask: vector(0xa4),
  i32x4ShiftLeft: vector(0xab),
  i32x4Add: vector(0xae),
  f32x4Add: vector(0xe4),
  f32x4Sub: vector(0xe5),
  f32x4Mul: vector(0xe6),
  /** min(a, b) that keeps a where b is NaN. */
  f32x4PseudoMin: vector(0xea),
  /** max(a, b) that keeps a where b is NaN. */
  f32x4PseudoMax: vector(0xeb),
  f64x2Add: vector(0xf0),
} as const;

/** A module that imports its memory as `host.memory` and exports every function under its name. */
export function assemble(functions: readonly WasmFunction[], pages: number): Uint8Array<ArrayBuffer> {
  const list = (items: readonly Code[]): number[] => [...unsigned(items.length), ...items.flat()];
  const section = (id: number, content: Code): number[] => [id, ...unsigned(content.length), ...content];
  const name = (text: string): number[] => list([...new TextEncoder().encode(text)].map(byte => [byte]));
  const types = functions.map(f => [
    0x60,
    ...list(f.params.map(type => [VALUE[type]])),
    ...list(f.result === undefined ? [] : [[VALUE[f.result]]]),
  ]);
  const bodies = functions.map(f => {
    const body = [...list(f.locals.map(type => [1, VALUE[type]])), ...f.body, 0x0b];
    return [...unsigned(body.length), ...body];
  });
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, list(types)),
    ...section(2, list([[...name('host'), ...name('memory'), 0x02, 0x00, ...unsigned(pages)]])),
    ...section(3, list(functions.map((_, index) => unsigned(index)))),
    ...section(7, list(functions.map((f, index) => [...name(f.name), 0x00, ...unsigned(index)]))),
    ...section(10, list(bodies)),
  ]);
}
