/**
 * FakeEngine: an engine without weights whose KV cache keeps, for each position, the token and how it was computed; the logits are a
 * function of all of it. So a wrong copy, move, load, position or order changes the output, and reading what was never written, was
 * released or was overwritten throws.
 *
 * A position's bits are a chain over the bits before it, its token and its kernel, as in a real model. `kernels` says what counts:
 * - 'same' (default): every kernel gives the same bits, so the output depends on the tokens alone;
 * - 'apart': prefill chunks, one-token chunks, decode in a batch of several rows and decode in a batch of one give different bits, as
 *   measured on the CPU provider. Then only a sequence computed in the reproducible way gives what `reference` gives.
 */
import type { BlockCopy, DecodeBatch, Engine, EngineShape, PrefillChunk } from '../../batcher/engine/engine.ts';

export type Kernel = 'prefill' | 'one-token-prefill' | 'decode' | 'lone-decode';

export interface Cell {
  tokenId: number;
  kernel: Kernel;
  bits: number;
}

export interface FakeEngineOptions {
  shape?: Partial<EngineShape>;
  kernels?: 'same' | 'apart';
  /** Awaited within every decode and prefill. */
  delay?: () => Promise<void>;
  /** Changes logits before they are returned, for instance to make an end token likely. */
  shapeLogits?: (logits: Float32Array, cell: Cell, position: number) => void;
}

const START_BITS = 0x2545f491;
const KERNEL_BITS: Record<Kernel, number> = { prefill: 1, 'one-token-prefill': 2, decode: 3, 'lone-decode': 4 };

function mix(a: number, b: number): number {
  let hash = Math.imul(a ^ b, 0x9e3779b1);
  hash ^= hash >>> 16;
  hash = Math.imul(hash, 0x85ebca6b);
  hash ^= hash >>> 13;
  return hash | 0;
}

function nextCell(before: Cell | undefined, tokenId: number, step: { kernel: Kernel; kernels: 'same' | 'apart' }): Cell {
  const kernelBits = step.kernels === 'apart' ? KERNEL_BITS[step.kernel] : 0;
  return { tokenId, kernel: step.kernel, bits: mix(mix(before?.bits ?? START_BITS, tokenId + 1), kernelBits) };
}

/** Logits from 0 up to 16, all different for a small vocabulary but by a great chance. */
function fillLogits(logits: Float32Array, cell: Cell): void {
  for (let tokenId = 0; tokenId < logits.length; tokenId += 1) logits[tokenId] = (mix(cell.bits, tokenId + 17) >>> 8) / 2 ** 20;
}

export function argmax(logits: Float32Array): number {
  let best = 0;
  for (let tokenId = 1; tokenId < logits.length; tokenId += 1) if (logits[tokenId]! > logits[best]!) best = tokenId;
  return best;
}

/**
 * What a sequence gives when it is computed alone and in the reproducible way: prompt by prefill, one decode step a token.
 * `choose` picks from the logits of position - 1 the token for `position`; undefined ends.
 */
export function reference(
  promptTokenIds: readonly number[],
  choose: (logits: Float32Array, position: number) => number | undefined,
  options: Pick<FakeEngineOptions, 'kernels' | 'shapeLogits'> & { vocabSize?: number } = {},
): number[] {
  const kernels = options.kernels ?? 'same';
  let cell: Cell | undefined;
  for (const tokenId of promptTokenIds)
    cell = nextCell(cell, tokenId, { kernel: promptTokenIds.length === 1 ? 'one-token-prefill' : 'prefill', kernels });
  const generated: number[] = [];
  const logits = new Float32Array(options.vocabSize ?? 32);
  for (let position = promptTokenIds.length; ; position += 1) {
    fillLogits(logits, cell!);
    options.shapeLogits?.(logits, cell!, position - 1);
    const tokenId = choose(logits, position);
    if (tokenId === undefined) return generated;
    generated.push(tokenId);
    cell = nextCell(cell, tokenId, { kernel: 'decode', kernels });
  }
}

export class FakeEngine implements Engine {
  readonly shape: EngineShape;
  readonly counts = { decode: 0, prefill: 0, copies: 0, copiedTokens: 0, savedBlocks: 0, loadedBlocks: 0 };
  readonly #kernels: 'same' | 'apart';
  readonly #delay: (() => Promise<void>) | undefined;
  readonly #shapeLogits: FakeEngineOptions['shapeLogits'];
  readonly #rows: (Cell | undefined)[][];
  readonly #store = new Map<number, Cell[]>();
  /** While it runs: the first position that the run writes, by row. */
  #writing: ReadonlyMap<number, number> | undefined;
  #isClosed = false;
  #failure: Error | undefined;

  constructor(options: FakeEngineOptions = {}) {
    this.shape = { vocabSize: 32, contextTokens: 256, rowCount: 8, blockTokens: 16, kvBytesPerToken: 1024, ...options.shape };
    this.#kernels = options.kernels ?? 'same';
    this.#delay = options.delay;
    this.#shapeLogits = options.shapeLogits;
    this.#rows = Array.from({ length: this.shape.rowCount }, () => []);
  }

  /** The next decode or prefill fails with this error. */
  failNext(error: Error): void {
    this.#failure = error;
  }

  /** What a row holds at its first positions. Throws when one of them holds nothing. */
  cells(row: number, count: number): Cell[] {
    return this.#read(row, 0, count);
  }

  /** Blocks of memory that rows and store use. */
  get usedBlocks(): number {
    let blocks = this.#store.size;
    for (const cells of this.#rows) blocks += Math.ceil(cells.length / this.shape.blockTokens);
    return blocks;
  }

  get storedBlockIds(): number[] {
    return [...this.#store.keys()];
  }

  async decode(batch: DecodeBatch): Promise<Float32Array> {
    const { tokenIds, positions } = batch;
    const rowCount = Math.max(tokenIds.length, batch.minRows ?? 1);
    if (tokenIds.length === 0 || tokenIds.length !== positions.length) throw new RangeError('decode: one token and position for each row.');
    if (rowCount > this.shape.rowCount) throw new RangeError(`decode: ${rowCount} rows, the cache has ${this.shape.rowCount}.`);
    const written = new Map(Array.from({ length: rowCount }, (_, row) => [row, positions[row] ?? 0]));
    return this.#run(written, () => {
      this.counts.decode += 1;
      // A cache of one row knows one kernel only.
      const kernel = rowCount === 1 && this.shape.rowCount > 1 ? 'lone-decode' : 'decode';
      const logits = new Float32Array(tokenIds.length * this.shape.vocabSize);
      for (let row = 0; row < rowCount; row += 1) {
        const position = positions[row] ?? 0;
        const cell = this.#write(row, position, tokenIds[row] ?? 0, kernel);
        if (row < tokenIds.length) this.#fill(logits, row, { cell, position });
      }
      // What padded the batch is nobody's; it must not be found again.
      for (let row = tokenIds.length; row < rowCount; row += 1) this.#rows[row]![0] = undefined;
      for (let row = tokenIds.length; row < rowCount; row += 1) this.#trim(row);
      return logits;
    });
  }

  async prefill(chunk: PrefillChunk): Promise<Float32Array> {
    const { row, start, tokenIds, logitCount } = chunk;
    if (tokenIds.length === 0) throw new RangeError('prefill: no token.');
    if (logitCount < 0 || logitCount > tokenIds.length) throw new RangeError(`prefill: ${logitCount} logits of ${tokenIds.length} tokens.`);
    return this.#run(new Map([[row, start]]), () => {
      this.counts.prefill += 1;
      const logits = new Float32Array(logitCount * this.shape.vocabSize);
      for (let i = 0; i < tokenIds.length; i += 1) {
        const cell = this.#write(row, start + i, tokenIds[i]!, tokenIds.length === 1 ? 'one-token-prefill' : 'prefill');
        const place = i - (tokenIds.length - logitCount);
        if (place >= 0) this.#fill(logits, place, { cell, position: start + i });
      }
      return logits;
    });
  }

  copyRow({ from, to, tokens }: { from: number; to: number; tokens: number }): void {
    this.#checkIdle();
    this.counts.copies += 1;
    this.counts.copiedTokens += tokens;
    const cells = this.#read(from, 0, tokens);
    const target = this.#row(to);
    for (let position = 0; position < tokens; position += 1) target[position] = cells[position];
  }

  saveBlocks(copy: BlockCopy): void {
    const { blockTokens } = this.shape;
    const end = (copy.firstBlock + copy.blockIds.length) * blockTokens;
    if ((this.#writing?.get(copy.row) ?? end) < end) throw new Error(`saveBlocks: row ${copy.row} is being written.`);
    copy.blockIds.forEach((id, i) => {
      this.#store.set(id, this.#read(copy.row, (copy.firstBlock + i) * blockTokens, blockTokens));
      this.counts.savedBlocks += 1;
    });
  }

  loadBlocks(copy: BlockCopy): void {
    this.#checkIdle();
    const { blockTokens } = this.shape;
    const target = this.#row(copy.row);
    copy.blockIds.forEach((id, i) => {
      const cells = this.#store.get(id);
      if (cells === undefined) throw new Error(`loadBlocks: block ${id} holds nothing.`);
      for (let at = 0; at < blockTokens; at += 1) target[(copy.firstBlock + i) * blockTokens + at] = cells[at];
      this.counts.loadedBlocks += 1;
    });
  }

  releaseRow(row: number, fromToken: number): void {
    this.#checkIdle();
    const cells = this.#row(row);
    if (cells.length > fromToken) cells.length = fromToken;
    this.#trim(row);
  }

  releaseBlocks(blockIds: readonly number[]): void {
    this.#checkIdle();
    for (const id of blockIds) {
      if (!this.#store.delete(id)) throw new Error(`releaseBlocks: block ${id} holds nothing.`);
    }
  }

  async kvResidentBytes(): Promise<number> {
    return this.usedBlocks * this.shape.blockTokens * this.shape.kvBytesPerToken;
  }

  close(): void {
    this.#checkIdle();
    this.#isClosed = true;
    this.#store.clear();
    for (const cells of this.#rows) cells.length = 0;
  }

  async #run(writing: ReadonlyMap<number, number>, work: () => Float32Array): Promise<Float32Array> {
    this.#checkIdle();
    this.#writing = writing;
    try {
      await (this.#delay?.() ?? Promise.resolve());
      const failure = this.#failure;
      this.#failure = undefined;
      if (failure !== undefined) throw failure;
      return work();
    } finally {
      this.#writing = undefined;
    }
  }

  #fill(logits: Float32Array, place: number, written: { cell: Cell; position: number }): void {
    const { vocabSize } = this.shape;
    const row = logits.subarray(place * vocabSize, (place + 1) * vocabSize);
    fillLogits(row, written.cell);
    this.#shapeLogits?.(row, written.cell, written.position);
  }

  #write(row: number, position: number, tokenId: number, kernel: Kernel): Cell {
    if (!Number.isInteger(position) || position < 0 || position >= this.shape.contextTokens)
      throw new RangeError(`Position ${position} of row ${row} is outside the context of ${this.shape.contextTokens} tokens.`);
    if (!Number.isInteger(tokenId) || tokenId < 0 || tokenId >= this.shape.vocabSize)
      throw new RangeError(`Token ${tokenId} is outside the vocabulary of ${this.shape.vocabSize}.`);
    const cells = this.#row(row);
    const before = position === 0 ? undefined : this.#read(row, 0, position).at(-1);
    const cell = nextCell(before, tokenId, { kernel, kernels: this.#kernels });
    cells[position] = cell;
    return cell;
  }

  #read(row: number, from: number, count: number): Cell[] {
    const cells = this.#row(row).slice(from, from + count) as Cell[];
    for (let i = 0; i < count; i += 1) {
      if (cells[i] === undefined) throw new Error(`Row ${row} holds nothing at position ${from + i}.`);
    }
    return cells;
  }

  #row(row: number): (Cell | undefined)[] {
    const cells = this.#rows[row];
    if (cells === undefined) throw new RangeError(`Row ${row} is outside the ${this.shape.rowCount} rows of the cache.`);
    return cells;
  }

  #trim(row: number): void {
    const cells = this.#row(row);
    while (cells.length > 0 && cells.at(-1) === undefined) cells.length -= 1;
  }

  #checkIdle(): void {
    if (this.#isClosed) throw new Error('The engine is closed.');
    if (this.#writing !== undefined) throw new Error('The engine is running; this may not be called until it is done.');
  }
}
