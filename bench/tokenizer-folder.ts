/**
 * TokenizerFolder: a model's vocabulary as the folder from which Hugging Face's libraries load a tokenizer, for tools that count tokens by
 * themselves. Byte-level vocabularies only; a plain text gives the same tokens as here.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { preTokenizerOf } from '../batcher/model/pre-tokenizer.ts';
import { TOKEN_KINDS, type Vocabulary } from '../batcher/model/vocabulary.ts';

/** Throws where the vocabulary is of another kind. */
export async function writeTokenizerFolder(vocabulary: Vocabulary, { folder, contextTokens }: { folder: string; contextTokens: number }) {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'tokenizer.json'), JSON.stringify(tokenizerJson(vocabulary)));
  await writeFile(join(folder, 'tokenizer_config.json'), JSON.stringify(tokenizerConfig(vocabulary, contextTokens)));
  // Some libraries ask the model's own description for the class of its tokenizer.
  await writeFile(join(folder, 'config.json'), JSON.stringify({ model_type: 'llama' }));
}

export function tokenizerJson(vocabulary: Vocabulary): Record<string, unknown> {
  const { kind, tokens, kinds, merges, preTokenizer, addBos, bosTokenId } = vocabulary;
  if (kind !== 'byte-level') throw new Error(`a tokenizer of the kind ${kind} is not written for other libraries`);
  const { patterns, ignoresMerges } = preTokenizerOf(preTokenizer, 'the vocabulary');
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  const pairs = Array.from({ length: merges.length / 3 }, (_, at) => [tokens[merges[3 * at]!]!, tokens[merges[3 * at + 1]!]!]);
  return {
    ...{ version: '1.0', truncation: null, padding: null, normalizer: null },
    added_tokens: tokens.flatMap((content, id) =>
      kinds[id] === TOKEN_KINDS.control || kinds[id] === TOKEN_KINDS.userDefined
        ? [{ id, content, ...PLAIN, special: kinds[id] === TOKEN_KINDS.control }]
        : [],
    ),
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        ...patterns.map(pattern => ({ type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false })),
        byteLevel,
      ],
    },
    post_processor: addBos && bosTokenId !== undefined ? bosInFront(tokens[bosTokenId]!, bosTokenId) : byteLevel,
    decoder: byteLevel,
    model: {
      ...{ type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null },
      ...{ fuse_unk: false, byte_fallback: false, ignore_merges: ignoresMerges },
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: pairs,
    },
  };
}

const PLAIN = { single_word: false, lstrip: false, rstrip: false, normalized: false };

function bosInFront(token: string, id: number): Record<string, unknown> {
  const sequence = (name: string, type: number) => ({ Sequence: { id: name, type_id: type } });
  const bos = (type: number) => ({ SpecialToken: { id: token, type_id: type } });
  return {
    type: 'TemplateProcessing',
    single: [bos(0), sequence('A', 0)],
    pair: [bos(0), sequence('A', 0), bos(1), sequence('B', 1)],
    special_tokens: { [token]: { id: token, ids: [id], tokens: [token] } },
  };
}

function tokenizerConfig({ tokens, bosTokenId, eosTokenId, chatTemplates }: Vocabulary, contextTokens: number): Record<string, unknown> {
  const text = (id: number | undefined) => (id === undefined ? null : (tokens[id] ?? null));
  return {
    ...{ tokenizer_class: 'PreTrainedTokenizerFast', model_max_length: contextTokens, clean_up_tokenization_spaces: false },
    ...{ bos_token: text(bosTokenId), eos_token: text(eosTokenId), pad_token: text(eosTokenId) },
    ...(chatTemplates.default !== undefined && { chat_template: chatTemplates.default }),
  };
}
