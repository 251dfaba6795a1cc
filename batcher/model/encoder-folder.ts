/**
 * EncoderFolder: a folder that holds an embedding model as sentence-transformers lays it out: which of its files are used, and what they say
 * of the model. What is not of the kind that is built here ends in a ModelError that names the file and the field.
 */
import { readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { ModelError, reasonOf } from './model-error.ts';

export interface EncoderShape {
  layerCount: number;
  headCount: number;
  width: number;
  feedForwardWidth: number;
  vocabSize: number;
  /** Positions that the model has. */
  positionCount: number;
  /** Longest text that it is meant for, its special tokens included. */
  contextTokens: number;
  normEpsilon: number;
  /** How the vectors of the tokens become one. */
  pooling: 'mean' | 'first';
  /** The vector is given the length 1. */
  isNormalized: boolean;
}

export const WEIGHTS_FILE = 'model.safetensors';
export const TOKENIZER_FILE = 'tokenizer.json';
const CONFIG_FILE = 'config.json';
const POOLING_FILE = '1_Pooling/config.json';
const MODULES_FILE = 'modules.json';
const LENGTH_FILE = 'sentence_bert_config.json';

/** Files by which two folders of one model are told to be the same. */
export const REQUIRED_FILES = [CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE] as const;
export const OPTIONAL_FILES = [POOLING_FILE, MODULES_FILE, LENGTH_FILE] as const;

const Count = z
  .int()
  .min(1)
  .max(1 << 24);

const Config = z.looseObject({
  model_type: z.literal('bert'),
  hidden_act: z.literal('gelu'),
  position_embedding_type: z.literal('absolute').optional(),
  hidden_size: Count,
  intermediate_size: Count,
  num_hidden_layers: Count,
  num_attention_heads: Count,
  vocab_size: Count,
  max_position_embeddings: Count,
  layer_norm_eps: z.number().positive(),
});

const Pooling = z.looseObject({
  pooling_mode_cls_token: z.boolean().optional(),
  pooling_mode_mean_tokens: z.boolean().optional(),
  pooling_mode_max_tokens: z.literal(false).optional(),
  pooling_mode_mean_sqrt_len_tokens: z.literal(false).optional(),
  pooling_mode_weightedmean_tokens: z.literal(false).optional(),
  pooling_mode_lasttoken: z.literal(false).optional(),
});

const Modules = z.array(z.looseObject({ type: z.string() }));
const KNOWN_MODULES = ['Transformer', 'Pooling', 'Normalize'];
const Lengths = z.looseObject({ max_seq_length: Count.nullish() });

/** Whether a path is such a folder, as far as can be seen from outside. */
export async function isEncoderFolder(path: string): Promise<boolean> {
  const found = await Promise.all(REQUIRED_FILES.map(name => stat(join(path, name)).catch(() => undefined)));
  return found.every(file => file?.isFile() === true);
}

/** What clients call the model: the folder's name in lower case. */
export function encoderNameOf(path: string): string {
  const name = basename(path)
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, '-')
    .replace(/^[-.]+|[-.]+$/g, '');
  return name === '' ? 'model' : name;
}

/** Throws ModelError. */
export async function readEncoderShape(folder: string): Promise<EncoderShape> {
  const config = await read(folder, CONFIG_FILE, Config);
  if (config === undefined) throw new ModelError(`${folder}: there is no ${CONFIG_FILE}.`);
  const pooling = await read(folder, POOLING_FILE, Pooling);
  const modules = await read(folder, MODULES_FILE, Modules);
  const lengths = await read(folder, LENGTH_FILE, Lengths);
  const isFirst = pooling?.pooling_mode_cls_token === true;
  if (pooling !== undefined && isFirst === (pooling.pooling_mode_mean_tokens === true)) {
    throw new ModelError(`${join(folder, POOLING_FILE)}: exactly one of the mean of all tokens and the first one can be taken.`);
  }
  const kinds = (modules ?? []).map(({ type }) => type.split('.').at(-1)!);
  const unknown = kinds.find(kind => !KNOWN_MODULES.includes(kind));
  if (unknown !== undefined) throw new ModelError(`${join(folder, MODULES_FILE)}: the module ${unknown} is not supported.`);
  const { hidden_size: width, num_attention_heads: headCount, max_position_embeddings: positionCount } = config;
  if (width % headCount !== 0) throw new ModelError(`${join(folder, CONFIG_FILE)}: ${width} is not a multiple of its ${headCount} heads.`);
  return {
    layerCount: config.num_hidden_layers,
    headCount,
    width,
    feedForwardWidth: config.intermediate_size,
    vocabSize: config.vocab_size,
    positionCount,
    contextTokens: Math.min(lengths?.max_seq_length ?? positionCount, positionCount),
    normEpsilon: config.layer_norm_eps,
    pooling: isFirst ? 'first' : 'mean',
    isNormalized: kinds.includes('Normalize'),
  };
}

/** Undefined where there is no such file. */
async function read<T extends z.ZodType>(folder: string, name: string, schema: T): Promise<z.output<T> | undefined> {
  const path = join(folder, name);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new ModelError(`${path}: cannot be read (${reasonOf(thrown)}).`, { cause: thrown });
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ModelError(`${path}: is no JSON.`);
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  throw new ModelError(`${path}: ${issue.path.join('.') || 'the file'} is not as it is supported here (${issue.message}).`);
}
