/**
 * RowKernels: the passes over a whole vocabulary, four tokens at a time, as WebAssembly vector code; several times faster than scalar JavaScript.
 * Hosts that have our kernel library use its passes instead (engine/kernels/rows.c), which are faster still.
 * Each reads a row in the kernels' own memory, whose length is a multiple of SUM_BLOCK (the rest is -Infinity), and never changes it; NaN counts as -Infinity.
 *
 * The weight exp(x) is made as 2^(n + r) with n an integer and |r| <= 1/2: relative error below 2e-7 beside that of the argument, which float32
 * rounds to |x| 1.2e-7. Weighted by probability this stays under 1e-6 in total. Sums are in float64.
 */
import { assemble, type Code, code, op, type WasmFunction } from './wasm-assembler.ts';

/** Tokens whose largest logit is kept. */
export const MAX_BLOCK = 64;
/** Tokens whose weights are summed together, so that a draw walks the sums and then one block. */
export const SUM_BLOCK = 512;
/** Ranges of distance from the largest logit whose weights are summed apart. */
export const MASS_BINS = 1024;
/** Distance from the largest scaled logit, in nats, from which on a weight is 0: 150,000 e^-40 is 6e-13 of the mass. */
export const WEIGHT_LIMIT = 40;

/** All addresses are bytes in the memory; counts are tokens. */
export interface RowKernels {
  /** Copies `source` to `row` and does blockMaxima of it. The row's tokens past the source's stay. */
  load(source: Float32Array, row: number, count: number, maxima: number): void;
  /** Largest logit of each MAX_BLOCK tokens, as float32 from `maxima` on. */
  blockMaxima(row: number, count: number, maxima: number): void;
  /** 2^((logit - max) * scale) of each token, as float32 from `weights` on, and their sum over each SUM_BLOCK, as float64 from `sums` on. */
  weigh(row: number, count: number, max: number, scale: number, weights: number, sums: number): void;
  /** Sum over each SUM_BLOCK of the weights of tokens whose logit is at least `least`, as float64 from `sums` on. */
  sumAbove(row: number, count: number, least: number, weights: number, sums: number): void;
  /** The sum of weight * (max - logit). */
  sumDistances(row: number, count: number, max: number, weights: number): number;
  /**
   * Ids of the tokens whose logit is at least `least`, ascending, as int32 from `ids` on (room for `count` and four more);
   * returns how many. `least` is above -Infinity. Blocks whose maximum (from `maxima` on) is less are not looked at.
   */
  collect(row: number, count: number, least: number, maxima: number, ids: number): number;
  /**
   * Adds each token's weight to that of its bin, as float64 from `masses` on: the whole part of (max - logit) * scale in float32, of MASS_BINS;
   * tokens past the last bin are left out.
   */
  binMasses(row: number, count: number, max: number, scale: number, weights: number, maxima: number, masses: number): void;
  /** Ids of the tokens of one such bin, as collect() gives them. */
  collectBin(row: number, count: number, max: number, scale: number, bin: number, maxima: number, ids: number): number;
}

const VECTOR_BYTES = 16;
const FLOAT_BYTES = 4;

/** 2^r on |r| <= 1/2, from the constant term up: interpolated at the Chebyshev nodes, relative error 2.6e-9. */
const POWER_OF_TWO = [
  1, 0.6931472067028321, 0.24022650922288827, 0.05550327226670944, 0.00961805667852609, 0.0013400428177419153, 0.0001546144469646172,
];
/** Added to a float32 of small size, it leaves the nearest integer in the low bits. */
const ROUNDING = 1.5 * 2 ** 23;
const LIMIT = -WEIGHT_LIMIT * Math.LOG2E;
const LARGEST_FINITE = 3.4028234663852886e38;
const CONSTANTS = [...POWER_OF_TWO, ROUNDING, LIMIT, -Infinity, LARGEST_FINITE];
const [AT_ROUNDING, AT_LIMIT, AT_MINUS_INFINITY, AT_LARGEST] = [7, 8, 9, 10];
/** Bytes at the start of the memory that hold the constants, each four times: an operand in memory is cheaper than a vector literal. */
export const CONSTANT_BYTES = CONSTANTS.length * VECTOR_BYTES;

function constant(index: number): Code {
  return code(op.i32(0), op.load(index * VECTOR_BYTES));
}

/** local += amount. */
function advance(local: number, amount: number): Code {
  return code(op.get(local), op.i32(amount), op.i32Add, op.set(local));
}

/** Whether local < bound. */
function isBelow(local: number, bound: number): Code {
  return code(op.get(local), op.get(bound), op.i32Less);
}

/** end = row + count floats. */
function setEnd(row: number, count: number, end: number): Code {
  return code(op.get(row), op.get(count), op.i32(2), op.i32ShiftLeft, op.i32Add, op.set(end));
}

function splat(from: number, to: number): Code {
  return code(op.get(from), op.f32x4Splat, op.set(to));
}

/** sum (two float64) += the four float32 of `vector`. */
function addTo(sum: number, vector: number): Code {
  const low = code(op.get(sum), op.get(vector), op.promoteLow, op.f64x2Add);
  return code(low, op.get(vector), op.get(vector), op.upperHalf, op.promoteLow, op.f64x2Add, op.set(sum));
}

function bothLanes(sum: number): Code {
  return code(op.get(sum), op.f64x2Lane(0), op.get(sum), op.f64x2Lane(1), op.f64Add);
}

/** For each SUM_BLOCK of a row: `oneVector` for every four tokens, moving `row` on; then `sum` to the next place of `sums`. */
function blockLoop({ row, end, blockEnd, sum, sums }: Record<'row' | 'end' | 'blockEnd' | 'sum' | 'sums', number>, oneVector: Code): Code {
  const start = code(op.get(row), op.i32(SUM_BLOCK * FLOAT_BYTES), op.i32Add, op.set(blockEnd), op.f64x2Zero, op.set(sum));
  const vectors = op.loop(code(oneVector, advance(row, VECTOR_BYTES), isBelow(row, blockEnd)));
  const finish = code(op.get(sums), bothLanes(sum), op.f64Store(0), advance(sums, 8));
  return op.loop(code(start, vectors, finish, isBelow(row, end)));
}

function blockMaxima(): WasmFunction {
  const [row, count, maxima, end, best] = [0, 1, 2, 3, 4];
  const vectors = Array.from({ length: MAX_BLOCK / 4 }, (_, i) => code(op.get(row), op.load(i * VECTOR_BYTES), op.f32x4PseudoMax));
  const lanes = [0, 1, 2, 3].map(lane => code(op.get(best), op.f32x4Lane(lane)));
  const largest = code(lanes[0]!, ...lanes.slice(1).map(lane => code(lane, op.f32Max)));
  const block = code(constant(AT_MINUS_INFINITY), ...vectors, op.set(best), op.get(maxima), largest, op.f32Store(0));
  return {
    name: 'blockMaxima',
    params: ['i32', 'i32', 'i32'],
    locals: ['i32', 'v128'],
    body: code(
      setEnd(row, count, end),
      op.loop(code(block, advance(maxima, FLOAT_BYTES), advance(row, MAX_BLOCK * FLOAT_BYTES), isBelow(row, end))),
    ),
  };
}

function weigh(): WasmFunction {
  const [row, count, max, scale, weights, sums] = [0, 1, 2, 3, 4, 5];
  const [end, blockEnd, maxes, scales, x, held, n, r, square, weight, sum] = [6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
  const pair = (low: number): Code => code(constant(low), op.get(r), constant(low + 1), op.f32x4Mul, op.f32x4Add);
  const timesSquare = code(op.get(square), op.f32x4Mul, op.f32x4Add);
  const oneVector = code(
    // x = (logit - max) * scale, a power of two
    code(op.get(row), op.load(0), op.get(maxes), op.f32x4Sub, op.get(scales), op.f32x4Mul, op.set(x)),
    // held at the limit so that it stays an exponent; n: the nearest integer, in the low bits
    code(constant(AT_LIMIT), op.get(x), op.f32x4PseudoMax, op.tee(held), constant(AT_ROUNDING), op.f32x4Add, op.set(n)),
    // r = held - n
    code(op.get(held), op.get(n), constant(AT_ROUNDING), op.f32x4Sub, op.f32x4Sub, op.tee(r)),
    code(op.get(r), op.f32x4Mul, op.set(square)),
    // 2^r, in pairs of terms (Estrin), which wait less for each other than one after the other (Horner)
    code(pair(0), pair(2), pair(4), constant(6), timesSquare, timesSquare, timesSquare),
    // times 2^n, by adding n to the exponent
    code(op.get(n), op.i32(23), op.i32x4ShiftLeft, op.i32x4Add),
    // 0 at the limit and beyond; the comparison is false for NaN
    code(op.get(x), constant(AT_LIMIT), op.f32x4Greater, op.and, op.set(weight)),
    code(op.get(weights), op.get(weight), op.store(0), advance(weights, VECTOR_BYTES)),
    addTo(sum, weight),
  );
  return {
    name: 'weigh',
    params: ['i32', 'i32', 'f32', 'f32', 'i32', 'i32'],
    locals: ['i32', 'i32', 'v128', 'v128', 'v128', 'v128', 'v128', 'v128', 'v128', 'v128', 'v128'],
    body: code(
      code(setEnd(row, count, end), splat(max, maxes), splat(scale, scales)),
      blockLoop({ row, end, blockEnd, sum, sums }, oneVector),
    ),
  };
}

function sumAbove(): WasmFunction {
  const [row, count, least, weights, sums, end, blockEnd, leasts, weight, sum] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  const isAbove = code(op.get(row), op.load(0), op.get(leasts), op.f32x4GreaterEqual);
  const oneVector = code(
    code(isAbove, op.get(weights), op.load(0), op.and, op.set(weight)),
    code(addTo(sum, weight), advance(weights, VECTOR_BYTES)),
  );
  return {
    name: 'sumAbove',
    params: ['i32', 'i32', 'f32', 'i32', 'i32'],
    locals: ['i32', 'i32', 'v128', 'v128', 'v128'],
    body: code(setEnd(row, count, end), splat(least, leasts), blockLoop({ row, end, blockEnd, sum, sums }, oneVector)),
  };
}

function sumDistances(): WasmFunction {
  const [row, count, max, weights, end, maxes, product, sum] = [0, 1, 2, 3, 4, 5, 6, 7];
  const oneVector = code(
    // Finite, since 0 times infinity is no number.
    code(constant(AT_LARGEST), op.get(maxes), op.get(row), op.load(0), op.f32x4Sub, op.f32x4PseudoMin),
    code(op.get(weights), op.load(0), op.f32x4Mul, op.set(product), addTo(sum, product)),
    code(advance(weights, VECTOR_BYTES), advance(row, VECTOR_BYTES), isBelow(row, end)),
  );
  return {
    name: 'sumDistances',
    params: ['i32', 'i32', 'f32', 'i32'],
    result: 'f64',
    locals: ['i32', 'v128', 'v128', 'v128'],
    body: code(setEnd(row, count, end), splat(max, maxes), op.loop(oneVector), bothLanes(sum)),
  };
}

function collect(): WasmFunction {
  const [row, count, least, maxima, ids] = [0, 1, 2, 3, 4];
  const [end, blockEnd, id, vectorId, first, bits, leasts] = [5, 6, 7, 8, 9, 10, 11];
  const isIn = (offset: number): Code => code(op.get(row), op.load(offset), op.get(leasts), op.f32x4GreaterEqual);
  // Always written, but kept only when the bit moves the end of the list on.
  const keepLane = (lane: number, offset: number): Code =>
    code(
      code(op.get(ids), op.get(vectorId), op.i32(lane + offset / FLOAT_BYTES), op.i32Add, op.i32Store(0)),
      code(op.get(ids), op.get(bits), op.i32(lane), op.i32ShiftRight, op.i32(1), op.i32And, op.i32(2), op.i32ShiftLeft, op.i32Add),
      op.set(ids),
    );
  const keepVector = (offset: number): Code =>
    code(isIn(offset), op.bitmask, op.tee(bits), op.when(code(...[0, 1, 2, 3].map(lane => keepLane(lane, offset)))));
  const offsets = [0, 1, 2, 3].map(i => i * VECTOR_BYTES);
  const fourVectors = code(
    code(isIn(offsets[0]!), ...offsets.slice(1).map(offset => code(isIn(offset), op.or)), op.anyTrue),
    op.when(code(...offsets.map(keepVector))),
    code(advance(vectorId, 16), advance(row, 4 * VECTOR_BYTES), isBelow(row, blockEnd)),
  );
  const start = code(op.get(row), op.i32(MAX_BLOCK * FLOAT_BYTES), op.i32Add, op.set(blockEnd), op.get(id), op.set(vectorId));
  const mayHold = code(op.get(maxima), op.f32Load(0), op.get(least), op.f32GreaterEqual);
  const next = code(op.get(blockEnd), op.set(row), advance(id, MAX_BLOCK), advance(maxima, FLOAT_BYTES));
  const block = code(start, mayHold, op.when(op.loop(fourVectors)), next, isBelow(row, end));
  return {
    name: 'collect',
    params: ['i32', 'i32', 'f32', 'i32', 'i32'],
    result: 'i32',
    locals: ['i32', 'i32', 'i32', 'i32', 'i32', 'i32', 'v128'],
    body: code(
      code(setEnd(row, count, end), op.get(ids), op.set(first), splat(least, leasts)),
      op.loop(block),
      code(op.get(ids), op.get(first), op.i32Sub, op.i32(2), op.i32ShiftRight),
    ),
  };
}

/** Part of the host that the language's own library does not declare. */
declare const WebAssembly: {
  Memory: new (size: { initial: number; maximum: number }) => { readonly buffer: ArrayBuffer };
  Module: new (bytes: Uint8Array) => object;
  Instance: new (module: object, imports: { host: { memory: object } }) => { readonly exports: unknown };
};

const PAGE_BYTES = 65_536;

/** Kernels on a memory of their own of at least `bytes`, the first CONSTANT_BYTES of which are theirs. */
export function openKernels(bytes: number): { kernels: RowKernels; buffer: ArrayBuffer } {
  const pages = Math.ceil(bytes / PAGE_BYTES);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  CONSTANTS.forEach((value, index) => {
    new Float32Array(memory.buffer, index * VECTOR_BYTES, 4).fill(value);
  });
  const module = new WebAssembly.Module(assemble([blockMaxima(), weigh(), sumAbove(), sumDistances(), collect()], pages));
  const passes = new WebAssembly.Instance(module, { host: { memory } }).exports as Omit<RowKernels, 'load' | 'binMasses' | 'collectBin'>;
  const load: RowKernels['load'] = (source, row, count, maxima) => {
    new Float32Array(memory.buffer, row, source.length).set(source);
    passes.blockMaxima(row, count, maxima);
  };
  return { kernels: { ...passes, load, ...binPasses(memory.buffer) }, buffer: memory.buffer };
}

/** In plain loops, since vectors here can't put each lane at a place of its own. */
function binPasses(buffer: ArrayBuffer): Pick<RowKernels, 'binMasses' | 'collectBin'> {
  return {
    binMasses(row, count, max, scale, weights, _, masses) {
      const logits = new Float32Array(buffer, row, count);
      const weightOf = new Float32Array(buffer, weights, count);
      const massOf = new Float64Array(buffer, masses, MASS_BINS).fill(0);
      const step = Math.fround(scale);
      for (let id = 0; id < count; id++) {
        const place = Math.fround(Math.fround(max - logits[id]!) * step);
        if (place < MASS_BINS) massOf[Math.trunc(place)]! += weightOf[id]!;
      }
    },
    collectBin(row, count, max, scale, bin, _, ids) {
      const logits = new Float32Array(buffer, row, count);
      const found = new Int32Array(buffer, ids, count);
      const step = Math.fround(scale);
      let length = 0;
      for (let id = 0; id < count; id++) {
        const place = Math.fround(Math.fround(max - logits[id]!) * step);
        if (place >= bin && place < bin + 1) found[length++] = id;
      }
      return length;
    },
  };
}
