/**
 * OnnxGraph: an ONNX model under construction: nodes, inputs, outputs, and weights that live in a data file beside it.
 * It lays out the data file as it goes and never holds weights itself: `region` reserves bytes, their owner writes them.
 */
import onnxProto, { type onnx } from 'onnx-proto';

export type ElementType = 'float' | 'float16' | 'uint8' | 'int32' | 'int64';

/** A run of bytes of the data file. */
export interface Region {
  offset: number;
  byteLength: number;
}

export type Attribute = { int: number } | { float: number };

export interface GraphValue {
  name: string;
  type: ElementType;
  /** A text names a size that is free. */
  dimensions: readonly (number | string)[];
}

/** The spike's opsets; onnxruntime 1.30 reads both. */
const OPSET = 21;
const MICROSOFT_DOMAIN = 'com.microsoft';
const KERNEL_DOMAIN = 'sluice';
const IR_VERSION = 10;
/** A page, so that onnxruntime can map each weight by itself. */
const ALIGNMENT = 4096;

const ELEMENT_CODES: Record<ElementType, number> = { float: 1, float16: 10, uint8: 2, int32: 6, int64: 7 };
const ELEMENT_BYTES: Record<ElementType, number> = { float: 4, float16: 2, uint8: 1, int32: 4, int64: 8 };
const ATTRIBUTE_FLOAT = 1;
const ATTRIBUTE_INT = 2;
const EXTERNAL = 1;

export class OnnxGraph {
  readonly #dataFileName: string;
  readonly #nodes: onnx.INodeProto[] = [];
  readonly #initializers = new Map<string, onnx.ITensorProto>();
  readonly #inputs: onnx.IValueInfoProto[] = [];
  readonly #outputs: onnx.IValueInfoProto[] = [];
  #dataBytes = 0;
  #hasKernelNodes = false;

  constructor(dataFileName: string) {
    this.#dataFileName = dataFileName;
  }

  /** Size that the data file will have. */
  get dataBytes(): number {
    return this.#dataBytes;
  }

  input(value: GraphValue): void {
    this.#inputs.push(valueInfo(value));
  }

  output(value: GraphValue): void {
    this.#outputs.push(valueInfo(value));
  }

  /** An operator of the ONNX standard. Empty names are absent optional inputs or outputs. */
  node(op: string, inputs: readonly string[], outputs: readonly string[], attributes: Readonly<Record<string, Attribute>> = {}): void {
    this.#addNode({ opType: op, inputs, outputs, attributes, domain: '' });
  }

  /** One of onnxruntime's own operators. */
  microsoftNode(op: string, inputs: readonly string[], outputs: readonly string[], attributes: Readonly<Record<string, Attribute>>): void {
    this.#addNode({ opType: op, inputs, outputs, attributes, domain: MICROSOFT_DOMAIN });
  }

  /** One of our own kernels. */
  kernelNode(op: string, inputs: readonly string[], outputs: readonly string[], attributes: Readonly<Record<string, Attribute>>): void {
    this.#hasKernelNodes = true;
    this.#addNode({ opType: op, inputs, outputs, attributes, domain: KERNEL_DOMAIN });
  }

  /** A small constant, kept in the graph itself. */
  constant(name: string, type: ElementType, dimensions: readonly number[], bytes: Uint8Array): string {
    this.#initializers.set(name, { name, dataType: ELEMENT_CODES[type], dims: [...dimensions], rawData: bytes });
    return name;
  }

  /** Reserves room in the data file. */
  region(type: ElementType, elementCount: number): Region {
    const offset = Math.ceil(this.#dataBytes / ALIGNMENT) * ALIGNMENT;
    const byteLength = elementCount * ELEMENT_BYTES[type];
    this.#dataBytes = offset + byteLength;
    return { offset, byteLength };
  }

  /** A weight that reads a region; several weights may read the same one under different dimensions. */
  weight(name: string, type: ElementType, dimensions: readonly number[], region: Region): string {
    this.#initializers.set(name, {
      name,
      dataType: ELEMENT_CODES[type],
      dims: [...dimensions],
      dataLocation: EXTERNAL,
      externalData: [
        { key: 'location', value: this.#dataFileName },
        { key: 'offset', value: String(region.offset) },
        { key: 'length', value: String(region.byteLength) },
      ],
    });
    return name;
  }

  hasWeight(name: string): boolean {
    return this.#initializers.has(name);
  }

  /** The model file. */
  encode(graphName: string): Uint8Array {
    return onnxProto.onnx.ModelProto.encode({
      irVersion: IR_VERSION,
      producerName: 'sluice',
      opsetImport: [
        { domain: '', version: OPSET },
        { domain: MICROSOFT_DOMAIN, version: 1 },
        ...(this.#hasKernelNodes ? [{ domain: KERNEL_DOMAIN, version: 1 }] : []),
      ],
      graph: {
        name: graphName,
        node: this.#nodes,
        initializer: [...this.#initializers.values()],
        input: this.#inputs,
        output: this.#outputs,
      },
    }).finish();
  }

  #addNode(parts: {
    opType: string;
    domain: string;
    inputs: readonly string[];
    outputs: readonly string[];
    attributes: Readonly<Record<string, Attribute>>;
  }): void {
    this.#nodes.push({
      name: `${parts.opType}_${this.#nodes.length}`,
      opType: parts.opType,
      domain: parts.domain,
      input: [...parts.inputs],
      output: [...parts.outputs],
      attribute: Object.entries(parts.attributes).map(([name, value]) =>
        'int' in value ? { name, type: ATTRIBUTE_INT, i: value.int } : { name, type: ATTRIBUTE_FLOAT, f: value.float },
      ),
    });
  }
}

function valueInfo({ name, type, dimensions }: GraphValue): onnx.IValueInfoProto {
  const dim = dimensions.map(size => (typeof size === 'number' ? { dimValue: size } : { dimParam: size }));
  return { name, type: { tensorType: { elemType: ELEMENT_CODES[type], shape: { dim } } } };
}
