/**
 * TensorType: how a GGUF tensor's elements lie in the file, by the number that the format gives to each type.
 * Only the types of the table can be read; the other names are known so that a refusal can say what it met.
 * Source: the ggml type list and block layouts of the GGUF specification.
 */
import { ModelError } from './model-error.ts';

export type TensorTypeName = 'F32' | 'F16' | 'BF16' | 'Q4_0' | 'Q4_1' | 'Q5_0' | 'Q5_1' | 'Q8_0' | 'Q4_K' | 'Q5_K' | 'Q6_K';

export interface TensorType {
  name: TensorTypeName;
  /** Elements that are stored together; a row holds a whole number of blocks. */
  blockElements: number;
  blockBytes: number;
  isFloat: boolean;
}

const TYPES: ReadonlyMap<number, TensorType> = new Map([
  [0, { name: 'F32', blockElements: 1, blockBytes: 4, isFloat: true }],
  [1, { name: 'F16', blockElements: 1, blockBytes: 2, isFloat: true }],
  [30, { name: 'BF16', blockElements: 1, blockBytes: 2, isFloat: true }],
  [2, { name: 'Q4_0', blockElements: 32, blockBytes: 18, isFloat: false }],
  [3, { name: 'Q4_1', blockElements: 32, blockBytes: 20, isFloat: false }],
  [6, { name: 'Q5_0', blockElements: 32, blockBytes: 22, isFloat: false }],
  [7, { name: 'Q5_1', blockElements: 32, blockBytes: 24, isFloat: false }],
  [8, { name: 'Q8_0', blockElements: 32, blockBytes: 34, isFloat: false }],
  [12, { name: 'Q4_K', blockElements: 256, blockBytes: 144, isFloat: false }],
  [13, { name: 'Q5_K', blockElements: 256, blockBytes: 176, isFloat: false }],
  [14, { name: 'Q6_K', blockElements: 256, blockBytes: 210, isFloat: false }],
]);

const OTHER_NAMES: Readonly<Record<number, string>> = {
  9: 'Q8_1',
  10: 'Q2_K',
  11: 'Q3_K',
  15: 'Q8_K',
  16: 'IQ2_XXS',
  17: 'IQ2_XS',
  18: 'IQ3_XXS',
  19: 'IQ1_S',
  20: 'IQ4_NL',
  21: 'IQ3_S',
  22: 'IQ2_S',
  23: 'IQ4_XS',
  24: 'I8',
  25: 'I16',
  26: 'I32',
  27: 'I64',
  28: 'F64',
  29: 'IQ1_M',
  34: 'TQ1_0',
  35: 'TQ2_0',
  39: 'MXFP4',
};

export const SUPPORTED_TENSOR_TYPES: readonly TensorTypeName[] = [...TYPES.values()].map(type => type.name);

/** Throws a ModelError that names the tensor, its type and the supported ones. */
export function tensorTypeOf(code: number, tensorName: string, fileName: string): TensorType {
  const type = TYPES.get(code);
  if (type !== undefined) return type;
  const name = OTHER_NAMES[code] ?? `number ${code}`;
  throw new ModelError(
    `${fileName}: tensor ${tensorName} has type ${name}, which is not supported; supported are ${SUPPORTED_TENSOR_TYPES.join(', ')}.`,
  );
}
