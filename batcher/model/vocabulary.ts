/**
 * Vocabulary: a model's tokens, how they merge and which of them mean something to the server, as plain data.
 * It is read from a GGUF file once, kept as JSON in the prepared folder, and all that tokenizer and chat template are made from.
 */
import type { GgufFile, GgufValue } from './gguf-file.ts';
import { type MergeTable, mergeTable } from './merge-table.ts';
import { ModelError } from './model-error.ts';
import { preTokenizerOf } from './pre-tokenizer.ts';
import { mergesFromScores } from './sentencepiece-merges.ts';

/** How GGUF files mark tokens. */
export const TOKEN_KINDS = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

export interface Vocabulary {
  /** `byte-level`: GPT-2's merges over bytes in disguise; `sentencepiece`: merges over characters, falling back to bytes. */
  kind: 'byte-level' | 'sentencepiece';
  /** Of a byte-level vocabulary. */
  preTokenizer: string | undefined;
  tokens: string[];
  /** A number of TOKEN_KINDS for each token. */
  kinds: number[];
  merges: MergeTable;
  /** SentencePiece: a text gets a space in front. */
  addSpacePrefix: boolean;
  bosTokenId: number | undefined;
  eosTokenId: number | undefined;
  addBos: boolean;
  unknownTokenId: number | undefined;
  endTokenIds: number[];
  /** Jinja source by name; `default` is the one without a name. */
  chatTemplates: Record<string, string>;
}

/** Texts under which models end a turn; a control token of such a text ends a generation even if no key of the file says so. */
const END_TEXTS: ReadonlySet<string> = new Set([
  '<|im_end|>',
  '<|eot_id|>',
  '<|eom_id|>',
  '<|eot|>',
  '<|eom|>',
  '<|end|>',
  '<|endoftext|>',
  '<|end_of_text|>',
  '<|end_of_turn|>',
  '<end_of_turn>',
  '<|return|>',
  '<EOT>',
  '</s>',
]);

export function readVocabulary(file: GgufFile, vocabSize: number): Vocabulary {
  const { fileName, metadata } = file;
  const model = metadata.get('tokenizer.ggml.model');
  if (model !== 'gpt2' && model !== 'llama') {
    throw new ModelError(
      `${fileName}: has a tokenizer of the kind ${JSON.stringify(model ?? 'none')}; supported are "gpt2" (byte-level BPE) and "llama" (SentencePiece).`,
    );
  }
  const tokens = stringsOf(file, 'tokenizer.ggml.tokens');
  if (tokens === undefined || tokens.length === 0 || tokens.length > vocabSize) {
    throw new ModelError(`${fileName}: names ${tokens?.length ?? 0} tokens and has an embedding of ${vocabSize}; each token needs a row.`);
  }
  const kinds = numbersOf(file, 'tokenizer.ggml.token_type', tokens.length) ?? tokens.map(() => TOKEN_KINDS.normal);
  const tokenId = (key: string): number | undefined => tokenIdOf(file, `tokenizer.ggml.${key}_token_id`, tokens.length);
  const isSentencePiece = model === 'llama';
  const preTokenizer = isSentencePiece ? undefined : (metadata.get('tokenizer.ggml.pre') as string | undefined);
  const addsBosByDefault = isSentencePiece || preTokenizerOf(preTokenizer, fileName).addsBos;
  const bosTokenId = tokenId('bos') ?? (isSentencePiece ? tokens.indexOf('<s>') : -1);
  const hasBos = bosTokenId >= 0;
  return {
    kind: isSentencePiece ? 'sentencepiece' : 'byte-level',
    preTokenizer,
    tokens,
    kinds,
    merges: mergeTable(mergeableIds(tokens, kinds), isSentencePiece ? sentencePieceMerges(file, tokens, kinds) : byteLevelMerges(file)),
    addSpacePrefix: booleanOf(file, 'tokenizer.ggml.add_space_prefix') ?? isSentencePiece,
    bosTokenId: hasBos ? bosTokenId : undefined,
    eosTokenId: tokenId('eos'),
    addBos: hasBos && (booleanOf(file, 'tokenizer.ggml.add_bos_token') ?? addsBosByDefault),
    unknownTokenId: tokenId('unknown'),
    endTokenIds: endTokens(tokens, kinds, [tokenId('eos'), tokenId('eot'), tokenId('eom')]),
    chatTemplates: chatTemplatesOf(metadata),
  };
}

function endTokens(tokens: readonly string[], kinds: readonly number[], named: readonly (number | undefined)[]): number[] {
  const ids = new Set(named.filter(id => id !== undefined));
  for (const [id, token] of tokens.entries()) if (kinds[id] === TOKEN_KINDS.control && END_TEXTS.has(token)) ids.add(id);
  return [...ids].sort((a, b) => a - b);
}

/** Control and user-defined tokens take no part in merges: none can come out of plain text. */
function mergeableIds(tokens: readonly string[], kinds: readonly number[]): Map<string, number> {
  const ids = new Map<string, number>();
  for (let id = 0; id < tokens.length; id++) if (isMergeable(kinds[id]!)) ids.set(tokens[id]!, id);
  return ids;
}

export function isMergeable(kind: number): boolean {
  return kind === TOKEN_KINDS.normal || kind === TOKEN_KINDS.byte || kind === TOKEN_KINDS.unused;
}

/** Each is two texts with a space between; the alphabet of bytes has no space. */
function* byteLevelMerges(file: GgufFile): Iterable<[string, string]> {
  const merges = stringsOf(file, 'tokenizer.ggml.merges');
  if (merges === undefined) throw new ModelError(`${file.fileName}: has no tokenizer.ggml.merges, which a byte-level vocabulary needs.`);
  for (const merge of merges) {
    const space = merge.indexOf(' ');
    yield [merge.slice(0, space), merge.slice(space + 1)];
  }
}

function sentencePieceMerges(file: GgufFile, tokens: readonly string[], kinds: readonly number[]): [string, string][] {
  const scores = numbersOf(file, 'tokenizer.ggml.scores', tokens.length);
  if (scores === undefined) throw new ModelError(`${file.fileName}: has no tokenizer.ggml.scores, which a SentencePiece vocabulary needs.`);
  // Control tokens take no part: a text must never merge into one.
  const pieces = tokens.flatMap((text, id) => (kinds[id] === TOKEN_KINDS.normal ? [{ text, score: scores[id]! }] : []));
  return mergesFromScores(pieces);
}

/** `tokenizer.chat_template`, and `tokenizer.chat_template.NAME` for models that have several. */
function chatTemplatesOf(metadata: ReadonlyMap<string, GgufValue>): Record<string, string> {
  const templates: Record<string, string> = {};
  for (const [key, value] of metadata) {
    const match = /^tokenizer\.chat_template(?:\.([\w-]+))?$/.exec(key);
    if (match !== null && typeof value === 'string') templates[match[1] ?? 'default'] = value;
  }
  return templates;
}

function stringsOf(file: GgufFile, key: string): string[] | undefined {
  const value = file.metadata.get(key);
  if (value === undefined) return undefined;
  if (Array.isArray(value) && value.every(element => typeof element === 'string')) return value;
  throw new ModelError(`${file.fileName}: ${key} is no list of texts.`);
}

function numbersOf(file: GgufFile, key: string, length: number): number[] | undefined {
  const value = file.metadata.get(key);
  if (value === undefined) return undefined;
  if (Array.isArray(value) && value.length === length && value.every(element => typeof element === 'number')) return value;
  throw new ModelError(`${file.fileName}: ${key} is no list of ${length} numbers, one for each token.`);
}

function booleanOf(file: GgufFile, key: string): boolean | undefined {
  const value = file.metadata.get(key);
  if (value === undefined || typeof value === 'boolean') return value;
  throw new ModelError(`${file.fileName}: ${key} is neither true nor false.`);
}

function tokenIdOf(file: GgufFile, key: string, tokenCount: number): number | undefined {
  const value = file.metadata.get(key);
  // Converters write the largest 32-bit number for "none".
  if (value === undefined || value === 0xffffffff) return undefined;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < tokenCount) return value;
  throw new ModelError(`${file.fileName}: ${key} is ${String(value)}; it must be below the number of tokens, ${tokenCount}.`);
}
