/**
 * OrtEncoder: the encoder on onnxruntime's CPU provider, over the graph of model/bert-graph.ts; runs happen off the event loop, one at a
 * time. A text's vector is the same, up to rounding, whatever is beside it: nothing of another text or of padding is seen by its tokens.
 */
import { type Address, OnnxRuntime, type TensorType } from '../engine/foreign.ts';
import { NativeArray } from '../engine/native-array.ts';
import { ATTENTION_GROUPS } from '../model/bert-graph.ts';
import type { EncoderEngine, EncoderEngineShape } from './encoder-engine.ts';
import { lengthGroups } from './length-groups.ts';

export interface OrtEncoderOptions {
  graphPath: string;
  shape: EncoderEngineShape;
  pooling: 'mean' | 'first';
  threads: number;
  spinning: boolean | 'brief';
}

const GROUPS = Array.from({ length: ATTENTION_GROUPS }, (_, group) => group);
const INPUTS = ['ids', 'positions', 'pack', 'pool', ...GROUPS.flatMap(group => [`unpack${group}`, `mask${group}`])];
const typeOf = (input: string): TensorType => (input === 'pool' ? 'float32' : input.startsWith('mask') ? 'int32' : 'int64');
const FLOAT_BYTES = 4;

export class OrtEncoder implements EncoderEngine {
  readonly shape: EncoderEngineShape;
  readonly #runtime = OnnxRuntime.get();
  readonly #session: Address;
  readonly #pooling: OrtEncoderOptions['pooling'];
  readonly #inputNames = NativeArray.ofStrings(INPUTS);
  readonly #outputNames = NativeArray.ofStrings(['vectors']);
  readonly #inputs = new NativeArray(INPUTS.length * 8);
  readonly #outputs = new NativeArray(8);
  /** Grown to the largest run so far. */
  readonly #memory = new Map<string, NativeArray>();
  #isRunning = false;

  constructor(options: OrtEncoderOptions) {
    this.shape = options.shape;
    this.#pooling = options.pooling;
    this.#session = this.#runtime.openSession(options);
  }

  async embed(texts: readonly (readonly number[])[]): Promise<Float32Array> {
    if (this.#isRunning) throw new Error('encoder: one run at a time');
    this.#check(texts);
    const { width } = this.shape;
    const dimensions = this.#fill(texts);
    const vectors = this.#reserve('vectors', texts.length * width * FLOAT_BYTES);
    const tensors = INPUTS.map(name => this.#runtime.createTensor(typeOf(name), this.#memory.get(name)!.address, dimensions.get(name)!));
    const output = this.#runtime.createTensor('float32', vectors.address, [texts.length, width]);
    this.#inputs.bigint64().set(tensors);
    this.#outputs.bigint64()[0] = output;
    this.#isRunning = true;
    try {
      await this.#runtime.run(this.#session, {
        ...{ inputNames: this.#inputNames.address, inputs: this.#inputs.address, inputCount: INPUTS.length },
        ...{ outputNames: this.#outputNames.address, outputs: this.#outputs.address, outputCount: 1 },
      });
    } finally {
      this.#isRunning = false;
      for (const tensor of [...tensors, output]) this.#runtime.releaseTensor(tensor);
    }
    return vectors.float32(texts.length * width);
  }

  close(): void {
    if (this.#isRunning) throw new Error('close: a run is in flight');
    this.#runtime.closeSession(this.#session);
    for (const array of [...this.#memory.values(), this.#inputNames, this.#outputNames, this.#inputs, this.#outputs]) array.close();
  }

  /** Lays the texts out as the graph wants them; the dimensions of each input. */
  #fill(texts: readonly (readonly number[])[]): Map<string, readonly number[]> {
    const tokenCount = texts.reduce((sum, text) => sum + text.length, 0);
    const ids = this.#reserve('ids', tokenCount * 8).bigint64();
    const positions = this.#reserve('positions', tokenCount * 8).bigint64();
    const pool = this.#reserve('pool', texts.length * tokenCount * FLOAT_BYTES)
      .float32()
      .fill(0, 0, texts.length * tokenCount);
    /** Where each text begins. */
    const starts: number[] = [];
    let token = 0;
    for (const [row, text] of texts.entries()) {
      starts.push(token);
      for (const [place, id] of text.entries()) {
        ids[token] = BigInt(id);
        positions[token] = BigInt(place);
        pool[row * tokenCount + token] = this.#pooling === 'mean' ? 1 / text.length : place === 0 ? 1 : 0;
        token++;
      }
    }
    return new Map([
      ['ids', [tokenCount]],
      ['positions', [tokenCount]],
      ['pack', [tokenCount]],
      ['pool', [texts.length, tokenCount]],
      ...this.#fillGroups(texts, starts, tokenCount),
    ]);
  }

  #fillGroups(texts: readonly (readonly number[])[], starts: readonly number[], tokenCount: number): [string, readonly number[]][] {
    const pack = this.#reserve('pack', tokenCount * 8).bigint64();
    const groups = lengthGroups(
      texts.map(text => text.length),
      ATTENTION_GROUPS,
    );
    const dimensions: [string, readonly number[]][] = [];
    /** Places of the groups before. */
    let before = 0;
    for (const group of GROUPS) {
      // One that is empty has one place, which nothing asks for.
      const rows = groups[group] ?? [];
      const longest = texts[rows[0] ?? -1]?.length ?? 1;
      const shape = [Math.max(1, rows.length), longest];
      const placeCount = shape[0]! * longest;
      const unpack = this.#reserve(`unpack${group}`, placeCount * 8)
        .bigint64()
        .fill(0n, 0, placeCount);
      const mask = this.#reserve(`mask${group}`, placeCount * 4)
        .int32()
        .fill(rows.length === 0 ? 1 : 0, 0, placeCount);
      for (const [index, row] of rows.entries()) {
        for (let place = 0; place < texts[row]!.length; place++) {
          const wide = index * longest + place;
          unpack[wide] = BigInt(starts[row]! + place);
          mask[wide] = 1;
          pack[starts[row]! + place] = BigInt(before + wide);
        }
      }
      before += placeCount;
      dimensions.push([`unpack${group}`, shape], [`mask${group}`, shape]);
    }
    return dimensions;
  }

  #reserve(name: string, bytes: number): NativeArray {
    let array = this.#memory.get(name);
    if (array === undefined || array.bytes < bytes) {
      array?.close();
      array = new NativeArray(bytes);
      this.#memory.set(name, array);
    }
    return array;
  }

  /** An id outside the vocabulary would read memory that is not the embedding's. */
  #check(texts: readonly (readonly number[])[]): void {
    const { vocabSize, contextTokens } = this.shape;
    if (texts.length === 0) throw new RangeError('encoder: no texts');
    for (const text of texts) {
      if (text.length < 1 || text.length > contextTokens) throw new RangeError(`encoder: a text of ${text.length} tokens`);
      for (const id of text) if (!(id >= 0 && id < vocabSize)) throw new RangeError(`token id ${id} is outside the vocabulary`);
    }
  }
}
