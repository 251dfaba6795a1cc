/**
 * GraphWeights: the weights of a graph, from the GGUF tensors that they come from to the bytes of the data file.
 * Declaring a weight reserves its place and queues the work; `write` then goes through the source tensor by tensor in chunks of
 * bounded size, so that memory does not grow with the model.
 */
import type { GgufFile, GgufTensor } from './gguf-file.ts';
import { requireTensor } from './llama-shape.ts';
import { type FormChoice, isSameForm, type MatrixForm, type MatrixUse, matrixFormOf, storeRows, tensorFloats } from './matrix-form.ts';
import type { OnnxGraph, Region } from './onnx-graph.ts';
import { Scratch } from './scratch.ts';
import { TILE_ROWS, type TileForm, tileBytes } from './weight-tiles.ts';

/** Where the bytes go; writes may come in any order and never overlap. */
export interface WeightSink {
  write(offset: number, bytes: Uint8Array): Promise<void>;
}

/** One GGUF matrix of a fused projection. */
export interface MatrixPart {
  tensorName: string;
  /**
   * Set for queries and keys where the file interleaves the two halves of each head's rows (rotary pairs side by side); the graph wants the
   * halves one after the other.
   */
  interleavedHeadDim?: number;
}

export type StoredMatrix = { rows: number; columns: number } & (
  | { kind: 'dense'; floats: Region }
  | {
      kind: 'blocks';
      bits: 4 | 8;
      blockElements: number;
      blocksPerRow: number;
      quants: Region;
      scales: Region;
      offsets: Region | undefined;
    }
  | ({ kind: 'tiles'; tiles: Region } & TileForm)
);

/** How the tensors of one matrix lie: one below the other, or two of equal size with their tiles in turn. */
export type Arrangement = 'stacked' | 'in-turn';

interface Task {
  /** Source bytes, the measure of progress. */
  byteLength: number;
  run(sink: WeightSink): Promise<void>;
}

/** Elements of one chunk, 1 MiB as float32: larger ones are no faster and leave more garbage. */
const CHUNK_ELEMENTS = 1 << 18;

export class GraphWeights {
  readonly #graph: OnnxGraph;
  readonly #file: GgufFile;
  readonly #choice: FormChoice;
  readonly #tasks: Task[] = [];
  readonly #scratch = new Scratch();
  readonly #forms = new Map<string, number>();
  #areAllTiles = true;

  constructor(graph: OnnxGraph, file: GgufFile, choice: FormChoice) {
    this.#graph = graph;
    this.#file = file;
    this.#choice = choice;
  }

  /** How many matrices are stored in each form, for people: `4-bit blocks of 32 with offsets` to count. */
  get formCounts(): ReadonlyMap<string, number> {
    return this.#forms;
  }

  /** No matrix is stored otherwise. */
  get areAllTiles(): boolean {
    return this.#areAllTiles;
  }

  formOf(part: MatrixPart, use: MatrixUse = 'layer'): MatrixForm {
    return matrixFormOf(requireTensor(this.#file, part.tensorName), this.#choice, use);
  }

  /** The parts' rows as one matrix; all must have the same form and columns, and be tiles to lie in turn. */
  matrix(parts: readonly MatrixPart[], use: MatrixUse = 'layer', arrangement: Arrangement = 'stacked'): StoredMatrix {
    const form = this.formOf(parts[0]!, use);
    const tensors = parts.map(part => requireTensor(this.#file, part.tensorName));
    if (parts.some(part => !isSameForm(this.formOf(part, use), form))) throw new Error('parts of a fused matrix differ in form');
    this.#areAllTiles &&= form.kind === 'tiles';
    const matrix = this.#reserve(form, tensors);
    let firstRow = 0;
    for (const [i, tensor] of tensors.entries()) {
      const isInTurn = arrangement === 'in-turn';
      const place = {
        matrix,
        form,
        firstRow: isInTurn ? i * TILE_ROWS : firstRow,
        tileStep: isInTurn ? parts.length : 1,
        headDim: parts[i]!.interleavedHeadDim,
      };
      this.#tasks.push({ byteLength: tensor.byteLength, run: sink => this.#writeMatrix(tensor, place, sink) });
      firstRow += tensor.rows;
      const name = describe(form);
      this.#forms.set(name, (this.#forms.get(name) ?? 0) + 1);
    }
    return matrix;
  }

  /** A tensor of one dimension, as float32 under its own name. */
  vector(tensorName: string): string {
    return this.vectors([{ tensorName }], tensorName);
  }

  /** Tensors of one dimension side by side, as float32; what `interleavedHeadDim` says of a matrix's rows is meant of their elements. */
  vectors(parts: readonly MatrixPart[], name: string): string {
    const tensors = parts.map(part => requireTensor(this.#file, part.tensorName));
    const length = tensors.reduce((sum, tensor) => sum + tensor.columns, 0);
    const region = this.#graph.region('float', length);
    this.#tasks.push({
      byteLength: tensors.reduce((sum, tensor) => sum + tensor.byteLength, 0),
      run: async sink => {
        let offset = region.offset;
        for (const { tensorName, interleavedHeadDim: headDim } of parts) {
          const bytes = bytesOf(await this.floats(tensorName));
          await sink.write(
            offset,
            headDim === undefined ? bytes : separateHalves(bytes, new Uint8Array(bytes.length), { rowBytes: 4, headDim }),
          );
          offset += bytes.length;
        }
      },
    });
    return this.#graph.weight(name, 'float', [length], region);
  }

  /** The 0/1 matrix [columns, blocks] that sums each run of 32 columns; one for each width. */
  blockSumMatrix(columns: number): string {
    const name = `block_sum_${columns}`;
    if (this.#graph.hasWeight(name)) return name;
    const blocks = columns / 32;
    return this.table(name, [columns, blocks], (row, into) => {
      into.fill(0);
      into[Math.floor(row / 32)] = 1;
    });
  }

  /** A computed float32 matrix, filled row by row. */
  table(name: string, [rows, columns]: readonly [number, number], fillRow: (row: number, into: Float32Array) => void): string {
    const region = this.#graph.region('float', rows * columns);
    this.#tasks.push({
      byteLength: 0,
      run: async sink => {
        const chunkRows = Math.max(1, Math.floor(CHUNK_ELEMENTS / columns));
        for (let row = 0; row < rows; row += chunkRows) {
          const count = Math.min(chunkRows, rows - row);
          const floats = this.#scratch.floats('weights', count * columns);
          for (let i = 0; i < count; i++) fillRow(row + i, floats.subarray(i * columns, (i + 1) * columns));
          await sink.write(region.offset + row * columns * 4, bytesOf(floats));
        }
      },
    });
    return this.#graph.weight(name, 'float', [rows, columns], region);
  }

  /** A small tensor, now. */
  async floats(tensorName: string): Promise<Float32Array> {
    const tensor = requireTensor(this.#file, tensorName);
    const bytes = new Uint8Array(tensor.byteLength);
    await this.#file.readRows(tensor, 0, tensor.rows, bytes);
    return tensorFloats(tensor, bytes, new Scratch());
  }

  async write(sink: WeightSink, onProgress: (doneBytes: number, totalBytes: number) => void): Promise<void> {
    const totalBytes = this.#tasks.reduce((sum, task) => sum + task.byteLength, 0);
    let doneBytes = 0;
    for (const task of this.#tasks) {
      await task.run(sink);
      doneBytes += task.byteLength;
      onProgress(doneBytes, totalBytes);
    }
  }

  #reserve(form: MatrixForm, tensors: readonly GgufTensor[]): StoredMatrix {
    const columns = tensors[0]!.columns;
    const rows = tensors.reduce((sum, tensor) => sum + tensor.rows, 0);
    if (form.kind === 'dense') return { kind: 'dense', rows, columns, floats: this.#graph.region('float', rows * columns) };
    if (form.kind === 'tiles') {
      return { ...form, rows, columns, tiles: this.#graph.region('uint8', (rows / TILE_ROWS) * tileBytes(form, columns)) };
    }
    const { bits, blockElements } = form;
    const blocksPerRow = columns / blockElements;
    return {
      kind: 'blocks',
      rows,
      columns,
      bits,
      blockElements,
      blocksPerRow,
      quants: this.#graph.region('uint8', (rows * columns * bits) / 8),
      scales: this.#graph.region('float', rows * blocksPerRow),
      offsets: form.hasOffsets ? this.#graph.region('float', rows * blocksPerRow) : undefined,
    };
  }

  async #writeMatrix(tensor: GgufTensor, place: Place, sink: WeightSink): Promise<void> {
    const { matrix, form, firstRow, headDim } = place;
    const rowBytes = tensor.byteLength / tensor.rows;
    // Rows move only within a head, so a chunk of whole heads can be put in order by itself.
    const granule = headDim ?? (form.kind === 'tiles' ? TILE_ROWS : 1);
    const chunkRows = Math.max(1, Math.floor(CHUNK_ELEMENTS / tensor.columns / granule)) * granule;
    const buffer = this.#scratch.bytes('source', Math.min(chunkRows, tensor.rows) * rowBytes);
    for (let row = 0; row < tensor.rows; row += chunkRows) {
      const count = Math.min(chunkRows, tensor.rows - row);
      const bytes = buffer.subarray(0, count * rowBytes);
      await this.#file.readRows(tensor, row, count, bytes);
      const ordered =
        headDim === undefined ? bytes : separateHalves(bytes, this.#scratch.bytes('ordered', bytes.length), { rowBytes, headDim });
      const stored = storeRows(tensor, form, ordered, this.#scratch);
      const at = firstRow + row;
      if (stored.kind === 'tiles' && matrix.kind === 'tiles') {
        await writeTiles(
          stored.tiles,
          { matrix, tile: firstRow / TILE_ROWS + (row / TILE_ROWS) * place.tileStep, step: place.tileStep },
          sink,
        );
      } else if (stored.kind === 'dense' && matrix.kind === 'dense') {
        await sink.write(matrix.floats.offset + at * matrix.columns * 4, bytesOf(stored.floats));
      } else if (stored.kind === 'blocks' && matrix.kind === 'blocks') {
        await sink.write(matrix.quants.offset + (at * matrix.columns * matrix.bits) / 8, stored.quants);
        await sink.write(matrix.scales.offset + at * matrix.blocksPerRow * 4, bytesOf(stored.scales));
        if (matrix.offsets !== undefined && stored.offsets !== undefined) {
          await sink.write(matrix.offsets.offset + at * matrix.blocksPerRow * 4, bytesOf(stored.offsets));
        }
      }
    }
  }
}

interface Place {
  matrix: StoredMatrix;
  form: MatrixForm;
  /** Of the fused matrix. */
  firstRow: number;
  /** From each tile of the tensor to its next. */
  tileStep: number;
  headDim: number | undefined;
}

async function writeTiles(
  tiles: Uint8Array,
  { matrix, tile, step }: { matrix: StoredMatrix & { kind: 'tiles' }; tile: number; step: number },
  sink: WeightSink,
): Promise<void> {
  const bytes = tileBytes(matrix, matrix.columns);
  const start = matrix.tiles.offset + tile * bytes;
  if (step === 1) return sink.write(start, tiles);
  for (let i = 0; i * bytes < tiles.length; i++) await sink.write(start + i * step * bytes, tiles.subarray(i * bytes, (i + 1) * bytes));
}

/** Within each head: rows 0, 2, 4, … first, then rows 1, 3, 5, …. */
function separateHalves(bytes: Uint8Array, ordered: Uint8Array, { rowBytes, headDim }: { rowBytes: number; headDim: number }): Uint8Array {
  const headBytes = headDim * rowBytes;
  const half = headDim / 2;
  for (let head = 0; head < bytes.length; head += headBytes) {
    for (let row = 0; row < headDim; row++) {
      const target = head + ((row % 2) * half + Math.floor(row / 2)) * rowBytes;
      ordered.set(bytes.subarray(head + row * rowBytes, head + (row + 1) * rowBytes), target);
    }
  }
  return ordered;
}

function bytesOf(floats: Float32Array): Uint8Array {
  return new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength);
}

function describe(form: MatrixForm): string {
  if (form.kind === 'dense') return 'float32';
  if (form.kind === 'tiles') return `${form.bits}-bit tiles in blocks of ${form.blockElements}`;
  return `${form.bits}-bit blocks of ${form.blockElements}${form.hasOffsets ? ' with offsets' : ''}`;
}
