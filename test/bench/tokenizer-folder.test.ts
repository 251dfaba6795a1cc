/** The exported tokenizer, read by Hugging Face's own library (PyPI), gives the tokens that ours gives. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openGguf } from '../../batcher/model/gguf-file.ts';
import { loadVocabulary } from '../../batcher/model/prepare.ts';
import { Tokenizer } from '../../batcher/model/tokenizer.ts';
import { readVocabulary, type Vocabulary } from '../../batcher/model/vocabulary.ts';
import { readText } from '../../bench/passages.ts';
import { tokenizerJson, writeTokenizerFolder } from '../../bench/tokenizer-folder.ts';
import { preparedDefaultModel } from '../batcher/model/default-model.ts';
import { writeGguf } from '../batcher/model/gguf-writer.ts';
import { temporaryFolder } from '../batcher/model/temporary-folder.ts';
import { TINY, tinyLlama } from '../batcher/model/tiny-llama.ts';
import { pythonPath, runPython } from '../e2e/python-packages.ts';

const HARD = [
  '',
  ' ',
  'a  b\n\n c',
  "it's 1234567 naïve 🦀 words; WE'LL see 3.14e-10",
  'हिन्दी 中文 \u0000 \u001b e\u0301 👩‍👩‍👧 ａｂｃ ½ ٣',
  '<|im_start|>user\nhi<|im_end|>\n<|endoftext|>x',
  '<|im_start',
  '\t\ttabs and   spaces  \r\n\r\n  ',
  `${' '.repeat(70)}x${'\n'.repeat(9)}${'ab'.repeat(400)}`,
];

const PROGRAM = `
import json, sys, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1] + '/tokenizer.json')
texts = json.loads(sys.argv[2])
ids = [tokenizer.encode(text).ids for text in texts]
print(json.dumps({'ids': ids, 'texts': [tokenizer.decode(some, skip_special_tokens=False) for some in ids]}))`;

test('of the default model, over a long text and hard ones', async () => {
  const { directory } = await preparedDefaultModel();
  const text = (await readText()).slice(0, 20_000);
  await expectSame(await loadVocabulary(directory), [text, ...HARD]);
}, 300_000);

test('of a model that wants a BOS in front', async () => {
  const path = await writeGguf(
    `${await temporaryFolder()}/tiny.gguf`,
    tinyLlama({ metadata: { 'tokenizer.ggml.bos_token_id': { u32: 257 }, 'tokenizer.ggml.add_bos_token': { bool: true } } }),
  );
  await using file = await openGguf(path);
  const vocabulary = readVocabulary(file, TINY.vocab);
  expect(vocabulary.addBos).toBe(true);
  await expectSame(vocabulary, ['he hehe', 'plain']);
}, 300_000);

test('a SentencePiece vocabulary is refused by name', async () => {
  const { directory } = await preparedDefaultModel();
  const vocabulary: Vocabulary = { ...(await loadVocabulary(directory)), kind: 'sentencepiece' };
  expect(() => tokenizerJson(vocabulary)).toThrow('a tokenizer of the kind sentencepiece');
});

async function expectSame(vocabulary: Vocabulary, texts: readonly string[]): Promise<void> {
  const folder = join(await temporaryFolder(), 'tokenizer');
  await writeTokenizerFolder(vocabulary, { folder, contextTokens: 8192 });
  const path = await pythonPath('tokenizers==0.23.3');
  const read = JSON.parse(await runPython(PROGRAM, { path, args: [folder, JSON.stringify(texts)] })) as {
    ids: number[][];
    texts: string[];
  };
  const ours = new Tokenizer(vocabulary);
  for (const [index, text] of texts.entries()) expect(read.ids[index], text.slice(0, 80)).toEqual(ours.encodePrompt(text));
  // A BOS in front is the library's own addition.
  if (!vocabulary.addBos) expect(read.texts).toEqual(texts);
}
