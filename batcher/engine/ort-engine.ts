/**
 * OrtEngine: the engine on onnxruntime's CPU provider. Past and present of GroupQueryAttention are the same memory, so no step copies
 * keys or values; runs happen off the event loop, one at a time; close frees everything.
 *
 * Graph contract (made by model/graph): inputs input_ids [batch, tokens], seqlens_k [batch], total [], pick [picked],
 * past_k0, past_v0, … [batch, kv_heads, context, head_dim]; outputs logits [picked, vocab], present_k0, present_v0, …
 */
import type { BlockCopy, DecodeBatch, Engine, EngineShape, KvType, PrefillChunk } from './engine.ts';
import { type Address, OnnxRuntime, type RunArguments } from './foreign.ts';
import { KvMemory, type KvSide } from './kv-memory.ts';
import { NativeArray } from './native-array.ts';

export interface ModelShape {
  layers: number;
  kvHeads: number;
  headDim: number;
  vocabSize: number;
}

/** Bytes of keys and values of one token, over all layers. */
export function kvBytesPerToken({ layers, kvHeads, headDim }: Omit<ModelShape, 'vocabSize'>, kvType: KvType): number {
  return layers * 2 * kvHeads * headDim * ELEMENT_BYTES[kvType];
}

export interface OrtEngineOptions {
  graphPath: string;
  kernelPath: string | undefined;
  model: ModelShape;
  /** What the graph was made for. */
  kvType: KvType;
  threads: number;
  spinning: boolean;
  rowCount: number;
  contextTokens: number;
  blockTokens: number;
  /** Blocks that the store of the prefix cache can hold. */
  storeBlocks: number;
  profilePrefix?: string;
}

const FLOAT_BYTES = 4;
const ELEMENT_BYTES: Record<KvType, 2 | 4> = { f32: 4, f16: 2 };

/** The cache tensors of one range of rows, and the run arguments that name them; made once per range. */
interface RowRange {
  call: RunArguments;
  inputs: NativeArray;
  outputs: NativeArray;
  cacheTensors: Address[];
}

/** Input and output memory of one kind of run, grown to the largest run so far. */
interface StepMemory {
  ids: NativeArray;
  lengths: NativeArray;
  pick: NativeArray;
  logits: NativeArray;
}

export class OrtEngine implements Engine {
  readonly shape: EngineShape;
  readonly #runtime = OnnxRuntime.get();
  readonly #session: Address;
  readonly #kv: KvMemory;
  readonly #layers: number;
  readonly #inputNames: NativeArray;
  readonly #outputNames: NativeArray;
  readonly #total: NativeArray;
  readonly #totalTensor: Address;
  /** Keyed by first row and count. */
  readonly #ranges = new Map<string, RowRange>();
  readonly #decodeMemory: StepMemory;
  #prefillMemory: StepMemory;
  #running = false;

  constructor(options: OrtEngineOptions) {
    const { model } = options;
    const contextTokens = Math.ceil(options.contextTokens / options.blockTokens) * options.blockTokens;
    this.#layers = model.layers;
    this.shape = {
      vocabSize: model.vocabSize,
      contextTokens: options.contextTokens,
      rowCount: options.rowCount,
      blockTokens: options.blockTokens,
      kvBytesPerToken: kvBytesPerToken(model, options.kvType),
    };
    this.#session = this.#runtime.openSession(options);
    this.#kv = new KvMemory({
      layers: model.layers,
      kvHeads: model.kvHeads,
      headDim: model.headDim,
      elementBytes: ELEMENT_BYTES[options.kvType],
      rowCount: options.rowCount,
      contextTokens,
      blockTokens: options.blockTokens,
      storeBlocks: options.storeBlocks,
    });
    const layers = Array.from({ length: model.layers }, (_, layer) => layer);
    const cacheNames = (prefix: string) => layers.flatMap(layer => [`${prefix}_k${layer}`, `${prefix}_v${layer}`]);
    this.#inputNames = NativeArray.ofStrings(['input_ids', 'seqlens_k', 'total', 'pick', ...cacheNames('past')]);
    this.#outputNames = NativeArray.ofStrings(['logits', ...cacheNames('present')]);
    this.#total = new NativeArray(8);
    this.#totalTensor = this.#runtime.createTensor('int32', this.#total.address, []);
    this.#decodeMemory = this.#stepMemory(options.rowCount, options.rowCount);
    this.#prefillMemory = this.#stepMemory(64, 1);
  }

  async decode(batch: DecodeBatch): Promise<Float32Array> {
    const wanted = batch.tokenIds.length;
    const count = Math.max(wanted, batch.minRows ?? 1);
    if (wanted < 1 || count > this.shape.rowCount) throw new RangeError(`decode: ${count} rows, the cache has ${this.shape.rowCount}`);
    const memory = this.#decodeMemory;
    const ids = memory.ids.bigint64();
    const lengths = memory.lengths.int32();
    const pick = memory.pick.bigint64();
    let longest = 0;
    for (let row = 0; row < count; row++) {
      const tokenId = batch.tokenIds[row] ?? 0;
      const position = batch.positions[row] ?? 0;
      this.#checkToken(tokenId);
      if (position < 0 || position >= this.shape.contextTokens) throw new RangeError(`decode: position ${position} of row ${row}`);
      ids[row] = BigInt(tokenId);
      lengths[row] = position;
      pick[row] = BigInt(row);
      longest = Math.max(longest, position);
    }
    this.#total.int32()[0] = longest + 1;
    await this.#run({ firstRow: 0, rowCount: count, width: 1, picked: count, memory });
    return memory.logits.float32(wanted * this.shape.vocabSize);
  }

  async prefill(chunk: PrefillChunk): Promise<Float32Array> {
    const width = chunk.tokenIds.length;
    if (chunk.row < 0 || chunk.row >= this.shape.rowCount) throw new RangeError(`prefill: row ${chunk.row}`);
    if (width < 1 || chunk.start < 0 || chunk.start + width > this.shape.contextTokens) {
      throw new RangeError(`prefill: ${width} tokens at ${chunk.start}, the context has ${this.shape.contextTokens}`);
    }
    if (chunk.logitCount < 0 || chunk.logitCount > width) throw new RangeError(`prefill: ${chunk.logitCount} logits of ${width} tokens`);
    // The graph wants at least one row picked; a chunk within a prompt throws it away.
    const picked = Math.max(1, chunk.logitCount);
    const memory = this.#reservePrefill(width, picked);
    const ids = memory.ids.bigint64();
    const pick = memory.pick.bigint64();
    for (let i = 0; i < width; i++) {
      this.#checkToken(chunk.tokenIds[i]!);
      ids[i] = BigInt(chunk.tokenIds[i]!);
    }
    for (let i = 0; i < picked; i++) pick[i] = BigInt(width - picked + i);
    memory.lengths.int32()[0] = chunk.start + width - 1;
    this.#total.int32()[0] = chunk.start + width;
    await this.#run({ firstRow: chunk.row, rowCount: 1, width, picked, memory });
    return memory.logits.float32(chunk.logitCount * this.shape.vocabSize);
  }

  copyRow(copy: { from: number; to: number; tokens: number }): void {
    this.#kv.copyRow(copy.from, copy.to, copy.tokens);
  }

  saveBlocks(copy: BlockCopy): void {
    this.#kv.saveBlocks(copy.row, copy.firstBlock, copy.blockIds);
  }

  loadBlocks(copy: BlockCopy): void {
    this.#kv.loadBlocks(copy.row, copy.firstBlock, copy.blockIds);
  }

  releaseRow(row: number, fromToken: number): void {
    this.#kv.releaseRow(row, fromToken);
  }

  releaseBlocks(blockIds: readonly number[]): void {
    this.#kv.releaseBlocks(blockIds);
  }

  kvResidentBytes(): Promise<number | undefined> {
    return this.#kv.residentBytes();
  }

  close(): void {
    if (this.#running) throw new Error('close: a run is in flight');
    this.#runtime.closeSession(this.#session);
    for (const range of this.#ranges.values()) {
      range.cacheTensors.forEach(tensor => {
        this.#runtime.releaseTensor(tensor);
      });
      range.inputs.close();
      range.outputs.close();
    }
    this.#runtime.releaseTensor(this.#totalTensor);
    this.#kv.close();
    for (const memory of [this.#decodeMemory, this.#prefillMemory]) closeStepMemory(memory);
    for (const array of [this.#inputNames, this.#outputNames, this.#total]) array.close();
  }

  async #run(step: { firstRow: number; rowCount: number; width: number; picked: number; memory: StepMemory }): Promise<void> {
    if (this.#running) throw new Error('engine: one run at a time');
    const { memory } = step;
    const range = this.#range(step.firstRow, step.rowCount);
    const stepTensors = [
      this.#runtime.createTensor('int64', memory.ids.address, [step.rowCount, step.width]),
      this.#runtime.createTensor('int32', memory.lengths.address, [step.rowCount]),
      this.#runtime.createTensor('int64', memory.pick.address, [step.picked]),
      this.#runtime.createTensor('float32', memory.logits.address, [step.picked, this.shape.vocabSize]),
    ] as const;
    const inputs = range.inputs.bigint64();
    [inputs[0], inputs[1], inputs[3]] = [stepTensors[0], stepTensors[1], stepTensors[2]];
    range.outputs.bigint64()[0] = stepTensors[3];
    this.#running = true;
    try {
      await this.#runtime.run(this.#session, range.call);
    } finally {
      this.#running = false;
      for (const tensor of stepTensors) this.#runtime.releaseTensor(tensor);
    }
  }

  #range(firstRow: number, rowCount: number): RowRange {
    const key = `${firstRow}+${rowCount}`;
    let range = this.#ranges.get(key);
    if (range === undefined) {
      range = this.#makeRange(firstRow, rowCount);
      this.#ranges.set(key, range);
    }
    return range;
  }

  #makeRange(firstRow: number, rowCount: number): RowRange {
    const { kvHeads, headDim, contextTokens, elementBytes } = this.#kv.shape;
    const type = elementBytes === 2 ? 'float16' : 'float32';
    const cacheTensors: Address[] = [];
    for (let layer = 0; layer < this.#layers; layer++) {
      for (const side of ['k', 'v'] satisfies KvSide[]) {
        const address = this.#kv.rowAddress(layer, side, firstRow);
        cacheTensors.push(this.#runtime.createTensor(type, address, [rowCount, kvHeads, contextTokens, headDim]));
      }
    }
    // The zeros are filled in by each run: ids, lengths and pick in front of the cache, logits likewise.
    const inputs = NativeArray.ofAddresses([0n, 0n, this.#totalTensor, 0n, ...cacheTensors]);
    const outputs = NativeArray.ofAddresses([0n, ...cacheTensors]);
    const call: RunArguments = {
      inputNames: this.#inputNames.address,
      inputs: inputs.address,
      inputCount: 4 + cacheTensors.length,
      outputNames: this.#outputNames.address,
      outputs: outputs.address,
      outputCount: 1 + cacheTensors.length,
    };
    return { call, inputs, outputs, cacheTensors };
  }

  #stepMemory(tokens: number, logitRows: number): StepMemory {
    return {
      ids: new NativeArray(tokens * 8),
      lengths: new NativeArray(tokens * 4),
      pick: new NativeArray(tokens * 8),
      logits: new NativeArray(logitRows * this.shape.vocabSize * FLOAT_BYTES),
    };
  }

  #reservePrefill(tokens: number, logitRows: number): StepMemory {
    const memory = this.#prefillMemory;
    const heldTokens = memory.ids.bytes / 8;
    const heldRows = memory.logits.bytes / (this.shape.vocabSize * FLOAT_BYTES);
    if (tokens > heldTokens || logitRows > heldRows) {
      closeStepMemory(memory);
      this.#prefillMemory = this.#stepMemory(Math.max(tokens, heldTokens), Math.max(logitRows, heldRows));
    }
    return this.#prefillMemory;
  }

  /** An id outside the vocabulary would read memory that is not the embedding's. */
  #checkToken(tokenId: number): void {
    if (!(tokenId >= 0 && tokenId < this.shape.vocabSize)) throw new RangeError(`token id ${tokenId} is outside the vocabulary`);
  }
}

function closeStepMemory(memory: StepMemory): void {
  for (const array of Object.values(memory) as NativeArray[]) array.close();
}
