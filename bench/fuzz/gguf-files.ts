/**
 * GgufFiles: the header of the model's own GGUF file, cut, flipped and with absurd counts, lengths and offsets, read as far as a graph is made of it.
 * The weights behind it are a hole in the file, so that an input takes a moment.
 */
import { open, rm, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ChatTemplate } from '../../batcher/model/chat-template.ts';
import { openGguf } from '../../batcher/model/gguf-file.ts';
import { buildLlamaGraph } from '../../batcher/model/llama-graph.ts';
import { readLlamaShape } from '../../batcher/model/llama-shape.ts';
import { ModelError } from '../../batcher/model/model-error.ts';
import { Tokenizer } from '../../batcher/model/tokenizer.ts';
import { readVocabulary } from '../../batcher/model/vocabulary.ts';
import type { Dice } from './dice.ts';
import type { PartSurface } from './surface.ts';

const COUNTS = [0n, 1n, 2n, 0x7fffffffn, 0xffffffffn, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n];
/** Behind the texts of the vocabulary lies what is of use to nobody here. */
const VOCABULARY_KEY = 'tokenizer.ggml.tokens';

export const ggufFiles: PartSurface = {
  what: 'GGUF files: headers damaged, cut, with absurd counts',
  async open({ ggufPath }) {
    const path = join(tmpdir(), `sluice-fuzz-${process.pid}-${Date.now()}.gguf`);
    const { header, fileBytes } = await headerOf(ggufPath);
    return {
      async feed(dice) {
        const { bytes, length } = damagedHeader(header, fileBytes, dice);
        await write(path, bytes, length);
        try {
          await read(path, dice);
          return 'harmless';
        } catch (thrown) {
          if (!(thrown instanceof ModelError)) throw thrown;
          if (thrown.message.includes('\n') || thrown.message.length > 2_000)
            throw new Error(`no one line: ${thrown.message.slice(0, 200)}`);
          return 'refused (ModelError)';
        }
      },
      close: () => rm(path, { force: true }),
    };
  },
};

/** All that is before the weights. */
async function headerOf(path: string): Promise<{ header: Buffer; fileBytes: number }> {
  await using file = await openGguf(path);
  const start = Math.min(...[...file.tensors.values()].map(tensor => tensor.offset));
  const handle = await open(path, 'r');
  try {
    const header = Buffer.alloc(start);
    await handle.read(header, 0, start, 0);
    return { header, fileBytes: file.byteLength };
  } finally {
    await handle.close();
  }
}

function damagedHeader(header: Buffer, fileBytes: number, dice: Dice): { bytes: Buffer; length: number } {
  const bytes = Buffer.from(header);
  // Most of the header is vocabulary; its first part and its last, the directory of tensors, are what is believed.
  const texts = bytes.indexOf(VOCABULARY_KEY);
  const directory = bytes.lastIndexOf('token_embd.weight') - 8;
  const place = () =>
    dice.pick([dice.below(texts), directory + dice.below(Math.max(1, bytes.length - directory)), dice.below(bytes.length)]);
  for (let times = dice.between(1, 3); times > 0; times--) {
    const at = Math.min(place(), bytes.length - 8);
    const what = dice.below(5);
    if (what === 0) bytes[at] = bytes[at]! ^ (1 << dice.below(8));
    else if (what === 1) bytes.writeBigUInt64LE(dice.pick(COUNTS), at);
    else if (what === 2) bytes.writeUInt32LE(dice.pick([0, 1, 8, 9, 13, 255, 0xffffffff]), at);
    else if (what === 3) dice.bytes(8).copy(bytes, at);
    else bytes.copy(bytes, at, place(), place());
  }
  if (dice.chance(0.3)) {
    const length = dice.below(bytes.length);
    return { bytes: bytes.subarray(0, length), length };
  }
  return { bytes, length: dice.chance(0.2) ? dice.between(bytes.length, fileBytes) : fileBytes };
}

async function write(path: string, bytes: Buffer, length: number): Promise<void> {
  const handle = await open(path, 'w');
  try {
    await handle.write(bytes);
  } finally {
    await handle.close();
  }
  await truncate(path, length);
}

/** As preparing and opening a model read it. */
async function read(path: string, dice: Dice): Promise<void> {
  await using file = await openGguf(path);
  const shape = readLlamaShape(file);
  const vocabulary = readVocabulary(file, shape.vocabSize);
  const tokenizer = new Tokenizer(JSON.parse(JSON.stringify(vocabulary)));
  const template = new ChatTemplate(tokenizer, { contextTokens: shape.contextTokens });
  // Few reach the graph, whose tables take their time.
  if (dice.chance(0.1))
    await buildLlamaGraph(file, shape, { weights: undefined, quality: 'exact', kernels: 'stock', kvType: 'f32', dataFileName: 'data' });
  tokenizer.encodeText('A word or two.');
  template.renderChat([{ role: 'user', content: 'A word or two.' }]);
}
