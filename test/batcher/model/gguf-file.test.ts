import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { openGguf } from '../../../batcher/model/gguf-file.ts';
import { readLlamaShape } from '../../../batcher/model/llama-shape.ts';
import { ModelError } from '../../../batcher/model/model-error.ts';
import { readVocabulary } from '../../../batcher/model/vocabulary.ts';
import { type GgufSpec, ggufBytes, type MetadataValue, writeGguf } from './gguf-writer.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { TINY, tinyLlama } from './tiny-llama.ts';

async function refusal(bytes: Uint8Array | GgufSpec): Promise<string> {
  const path = join(await temporaryFolder(), 'model.gguf');
  await writeFile(path, bytes instanceof Uint8Array ? bytes : ggufBytes(bytes));
  try {
    await using file = await openGguf(path);
    const shape = readLlamaShape(file);
    readVocabulary(file, shape.vocabSize);
  } catch (thrown) {
    expect(thrown).toBeInstanceOf(ModelError);
    const { message } = thrown as ModelError;
    expect(message).not.toContain('\n');
    return message;
  }
  return 'accepted';
}

const withMetadata = (metadata: Record<string, MetadataValue>): GgufSpec => tinyLlama({ metadata });

describe('a GGUF file', () => {
  test('gives its metadata and the bytes of its tensors', async () => {
    const spec = tinyLlama({ other: 'Q4_K', embedding: 'Q8_0' });
    await using file = await openGguf(await writeGguf(join(await temporaryFolder(), 'tiny.gguf'), spec));
    expect(file.metadata.get('general.architecture')).toBe('llama');
    expect(file.metadata.get('tokenizer.ggml.tokens')).toHaveLength(TINY.vocab);
    const written = spec.tensors.find(tensor => tensor.name === 'blk.1.ffn_down.weight')!;
    const tensor = file.tensors.get(written.name)!;
    expect(tensor).toMatchObject({ columns: 512, rows: 256, byteLength: written.data.length });
    const into = new Uint8Array(3 * 288);
    await file.readRows(tensor, 7, 3, into);
    expect(Buffer.from(into)).toEqual(Buffer.from(written.data.subarray(7 * 288, 10 * 288)));
  });

  test('of version 2 reads the same', async () => {
    expect(await refusal({ ...tinyLlama(), version: 2 })).toBe('accepted');
  });
});

describe('a file that cannot be used is refused in one line', () => {
  test.each<[string, () => Uint8Array | GgufSpec, RegExp]>([
    ['empty', () => new Uint8Array(0), /not a GGUF file/],
    ['a text', () => Buffer.from('{"model": "not this"}'), /not a GGUF file/],
    ['version 1', () => ({ ...tinyLlama(), version: 1 }), /version 1; supported are .* 2 and 3/],
    ['big-endian', () => Buffer.concat([Buffer.from('GGUF'), Buffer.from([0, 0, 0, 3]), Buffer.alloc(64)]), /big-endian/],
    ['a header that ends early', () => ggufBytes(tinyLlama()).subarray(0, 700), /truncated/],
    ['a tensor that ends early', () => ggufBytes(tinyLlama()).subarray(0, -64), /truncated: tensor output_norm\.weight/],
    [
      'another architecture',
      () => withMetadata({ 'general.architecture': { text: 'mamba' } }),
      /architecture "mamba"; supported are "llama", "qwen2", "qwen3"/,
    ],
    ['a tensor type', () => unknownType(10), /blk\.0\.attn_q\.weight has type Q2_K, .*supported are F32, F16, BF16, .*Q6_K/],
    ['a tensor type of the future', () => unknownType(99), /has type number 99/],
    ['a missing tensor', () => without('blk.1.ffn_up.weight'), /no tensor blk\.1\.ffn_up\.weight/],
    ['more layers than tensors', () => withMetadata({ 'llama.block_count': { u32: 4_000_000_000 } }), /no tensor blk\.2\.attn_q\.weight/],
    ['a tensor too many', () => extraTensor('blk.0.attn_output.bias'), /tensor blk\.0\.attn_output\.bias, which .* does not use/],
    ['another size', () => withMetadata({ 'llama.feed_forward_length': { u32: 500 } }), /ffn_gate\.weight is 512 × 256; .* 500 × 256/],
    ['a missing number', () => withMetadata({ 'llama.context_length': { text: 'long' } }), /llama\.context_length is long; a number/],
    [
      'YaRN',
      () => withMetadata({ 'llama.rope.scaling.type': { text: 'yarn' }, 'llama.rope.scaling.factor': { f32: 4 } }),
      /"yarn".*"linear"/,
    ],
    ['half a rotation', () => withMetadata({ 'llama.rope.dimension_count': { u32: 16 } }), /rotates 16 of 32/],
    ['experts', () => withMetadata({ 'llama.expert_count': { u32: 8 } }), /mixture of 8 experts/],
    ['an encoder', () => withMetadata({ 'llama.attention.causal': { bool: false } }), /causal/],
    [
      'another tokenizer',
      () => withMetadata({ 'tokenizer.ggml.model': { text: 'bert' } }),
      /tokenizer of the kind "bert"; supported are "gpt2".*"llama"/,
    ],
    [
      'another pre-tokenizer',
      () => withMetadata({ 'tokenizer.ggml.pre': { text: 'klingon' } }),
      /"klingon".*supported are .*llama-bpe.*smollm/,
    ],
    ['an end token outside', () => withMetadata({ 'tokenizer.ggml.eos_token_id': { u32: 5000 } }), /eos_token_id is 5000/],
    ['no merges', () => withMetadata({ 'tokenizer.ggml.merges': { u32: 3 } }), /merges is no list of texts/],
  ])('%s', async (_, make, expected) => {
    expect(await refusal(make())).toMatch(expected);
  });

  test('whatever byte of a header is changed, and wherever it is cut', async () => {
    const bytes = ggufBytes(tinyLlama());
    const headerBytes = 6000;
    await fc.assert(
      fc.asyncProperty(fc.nat(headerBytes), fc.nat(255), fc.option(fc.nat(bytes.length)), async (at, value, length) => {
        const damaged = Buffer.from(bytes.subarray(0, length ?? bytes.length));
        if (at < damaged.length) damaged[at] = value;
        // Either the change means nothing, or there is a ModelError; anything else fails inside.
        await refusal(damaged);
      }),
      { numRuns: 150 },
    );
  });
});

function unknownType(code: number): GgufSpec {
  const spec = tinyLlama();
  spec.tensors.find(tensor => tensor.name === 'blk.0.attn_q.weight')!.type = code;
  return spec;
}

function without(name: string): GgufSpec {
  const spec = tinyLlama();
  return { ...spec, tensors: spec.tensors.filter(tensor => tensor.name !== name) };
}

function extraTensor(name: string): GgufSpec {
  const spec = tinyLlama();
  return { ...spec, tensors: [...spec.tensors, { name, dimensions: [8], type: 0, data: new Uint8Array(32) }] };
}
