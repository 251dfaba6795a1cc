/** EncoderVocabulary: what a BERT tokenizer knows: its pieces and how it looks at text before it cuts it, out of a tokenizer.json. */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { ModelError, reasonOf } from './model-error.ts';

export interface EncoderVocabulary {
  /** By id; a piece that goes on with a word begins with `##`. */
  pieces: string[];
  lowercase: boolean;
  stripAccents: boolean;
  /** Each CJK character is a word. */
  splitsCjk: boolean;
  /** Longer words are unknown, in characters. */
  longestWord: number;
  unknownId: number;
  /** What stands around each text. */
  beginId: number;
  endId: number;
  /** Control tokens, which no text contains. */
  controlIds: number[];
}

const TokenizerJson = z.looseObject({
  normalizer: z.looseObject({
    type: z.literal('BertNormalizer'),
    clean_text: z.literal(true).optional(),
    handle_chinese_chars: z.boolean(),
    strip_accents: z.boolean().nullish(),
    lowercase: z.boolean(),
  }),
  pre_tokenizer: z.looseObject({ type: z.literal('BertPreTokenizer') }),
  added_tokens: z.array(z.looseObject({ id: z.int().min(0), content: z.string(), special: z.boolean() })).nullish(),
  model: z.looseObject({
    type: z.literal('WordPiece').optional(),
    unk_token: z.string(),
    continuing_subword_prefix: z.literal('##').optional(),
    max_input_chars_per_word: z.int().min(1).max(10_000).optional(),
    vocab: z.record(z.string(), z.int().min(0)),
  }),
});

const DEFAULT_LONGEST_WORD = 100;
const BEGIN = '[CLS]';
const END = '[SEP]';

/** Throws a ModelError that names the file and what is not as it is supported. */
export async function readEncoderVocabulary(path: string, vocabSize: number): Promise<EncoderVocabulary> {
  const fault = (why: string, cause?: unknown) => new ModelError(`${path}: ${why}.`, { cause });
  let value: unknown;
  try {
    value = JSON.parse(await readFile(path, 'utf8'));
  } catch (thrown) {
    throw fault(`cannot be read as JSON (${reasonOf(thrown)})`, thrown);
  }
  const parsed = TokenizerJson.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    throw fault(`${issue.path.join('.') || 'the file'} is not as it is supported here (${issue.message})`);
  }
  const { normalizer, model, added_tokens: added } = parsed.data;
  const ids = new Map(Object.entries(model.vocab));
  for (const { id, content } of added ?? []) if (!ids.has(content)) ids.set(content, id);
  const pieces = new Array<string>(vocabSize).fill('');
  for (const [piece, id] of ids) {
    if (id >= vocabSize) throw fault(`token ${JSON.stringify(piece)} has the id ${id}, and the model has ${vocabSize}`);
    pieces[id] = piece;
  }
  const idOf = (piece: string): number => {
    const id = ids.get(piece);
    if (id === undefined) throw fault(`there is no token ${piece}`);
    return id;
  };
  return {
    pieces,
    lowercase: normalizer.lowercase,
    stripAccents: normalizer.strip_accents ?? normalizer.lowercase,
    splitsCjk: normalizer.handle_chinese_chars,
    longestWord: model.max_input_chars_per_word ?? DEFAULT_LONGEST_WORD,
    unknownId: idOf(model.unk_token),
    beginId: idOf(BEGIN),
    endId: idOf(END),
    controlIds: (added ?? []).filter(token => token.special).map(token => token.id),
  };
}
