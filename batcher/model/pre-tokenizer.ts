/**
 * PreTokenizer: the patterns that cut a text into words before byte-level merging, by the name that GGUF files give them in
 * `tokenizer.ggml.pre`. Several patterns are applied one after the other, each to the pieces that the one before left.
 *
 * Source: the tokenizer.json files of the models that the names stand for, and llama.cpp's reading of the same names.
 */
import { ModelError } from './model-error.ts';

export interface PreTokenizer {
  patterns: readonly string[];
  /** A word that is a token is taken whole, even where merges would not lead to it. */
  ignoresMerges: boolean;
  /** Prompts start with the BOS token unless the file says otherwise. */
  addsBos: boolean;
}

const CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/** Words may take one leading sign; numbers go in groups of up to this many digits. */
const signedWords = (digits: string): string =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
/** Words are cut where capitals begin. */
const TEKKEN =
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+' +
  '|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*' +
  '|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

const plain = (...patterns: string[]): PreTokenizer => ({ patterns, ignoresMerges: false, addsBos: false });
const LLAMA3: PreTokenizer = { patterns: [signedWords('{1,3}')], ignoresMerges: true, addsBos: true };

const BY_NAME: ReadonlyMap<string, PreTokenizer> = new Map([
  ...['llama-bpe', 'llama3', 'llama-v3', 'falcon3'].map(name => [name, LLAMA3] as const),
  ...['smaug-bpe', 'dbrx', 'chatglm-bpe'].map(name => [name, plain(signedWords('{1,3}'))] as const),
  ...['qwen2', 'deepseek-r1-qwen', 'stablelm2'].map(name => [name, plain(signedWords(''))] as const),
  ...['gpt-2', 'mpt', 'olmo', 'jais', 'phi-2', 'roberta-bpe', 'jina-es', 'jina-de'].map(name => [name, plain(GPT2)] as const),
  ...['smollm', 'starcoder', 'refact', 'command-r', 'codeshell', 'exaone', 'minerva-7b'].map(
    name => [name, plain('\\p{N}', GPT2)] as const,
  ),
  ['tekken', { patterns: [TEKKEN], ignoresMerges: true, addsBos: true }],
  ['default', plain('[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]')],
]);

/** A file from before the key existed (no name) is read with the default patterns, as llama.cpp does. */
export function preTokenizerOf(name: string | undefined, fileName: string): PreTokenizer {
  const found = BY_NAME.get(name ?? 'default');
  if (found !== undefined) return found;
  throw new ModelError(
    `${fileName}: cuts text by the rule ${JSON.stringify(name)} (tokenizer.ggml.pre), which is not supported; supported are ${[...BY_NAME.keys()].join(', ')}.`,
  );
}
