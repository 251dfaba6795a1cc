/** A prompt's canonical bytes and the hash chain over them. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ChatMessage, Prompt, Tool } from '../../shared/job.ts';
import { answerHead, HASH_LENGTH, PrefixChain, prefixHashes, promptBytes, TEXT_BLOCK_BYTES, tokenIdBytes } from '../../shared/prefix.ts';
import { compress, initialState } from '../../shared/sha-256.ts';

const chat = (messages: ChatMessage[], tools?: Tool[]): Prompt => ({ kind: 'chat', messages, ...(tools && { tools }) });
const user = (content: string): ChatMessage => ({ role: 'user', content });
const assistant = (content: string): ChatMessage => ({ role: 'assistant', content });
const startsWith = (bytes: Uint8Array, start: Uint8Array) => Buffer.from(bytes.subarray(0, start.length)).equals(start);
const joined = (...parts: Uint8Array[]) => new Uint8Array(Buffer.concat(parts));

const text = fc.string({ unit: 'binary', maxLength: 40 });
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const message: fc.Arbitrary<ChatMessage> = fc
  .record({
    role: fc.constantFrom('system' as const, 'user' as const, 'assistant' as const, 'tool' as const),
    content: fc.option(text),
    name: optional(text),
    toolCallId: optional(text),
    toolCalls: optional(
      fc.array(fc.record({ id: text, type: fc.constant('function' as const), function: fc.record({ name: text, arguments: text }) }), {
        minLength: 1,
        maxLength: 3,
      }),
    ),
  })
  .map(({ name, toolCallId, toolCalls, ...rest }) => ({
    ...rest,
    ...(name !== undefined && { name }),
    ...(toolCallId !== undefined && { toolCallId }),
    ...(toolCalls !== undefined && { toolCalls }),
  }));
const tool = fc.object().map((parameters): Tool => ({ type: 'function', function: { name: 'f', parameters } }));
const toolOf = (name: string): Tool => ({ type: 'function', function: { name } });
const messages = fc.array(message, { minLength: 1, maxLength: 5 });
const prompt: fc.Arbitrary<Prompt> = fc.oneof(
  messages.map(each => chat(each)),
  fc.tuple(messages, fc.array(tool, { minLength: 1, maxLength: 3 })).map(([each, tools]) => chat(each, tools)),
  text.map(each => ({ kind: 'text' as const, text: each })),
  fc.array(fc.nat(300_000), { minLength: 1, maxLength: 20 }).map(tokenIds => ({ kind: 'tokens' as const, tokenIds })),
);

describe('the compression function', () => {
  it.each(['', 'abc', 'x'.repeat(55), 'x'.repeat(56), 'é'.repeat(1000)])('gives SHA-256 over padded blocks (%#)', input => {
    const bytes = Buffer.from(input);
    const padded = Buffer.alloc(Math.ceil((bytes.length + 9) / 64) * 64);
    bytes.copy(padded);
    padded[bytes.length] = 0x80;
    padded.writeUInt32BE(bytes.length * 8, padded.length - 4);
    const state = initialState();
    for (let at = 0; at < padded.length; at += 64) compress(state, padded, at);
    const hex = Array.from(state, word => (word >>> 0).toString(16).padStart(8, '0')).join('');
    expect(hex).toBe(createHash('sha256').update(bytes).digest('hex'));
  });
});

describe('canonical bytes', () => {
  it('differ between different prompts', () => {
    fc.assert(
      fc.property(prompt, prompt, (a, b) => {
        const isEqual = JSON.stringify(a) === JSON.stringify(b);
        expect(Buffer.from(promptBytes(a)).equals(promptBytes(b))).toBe(isEqual);
      }),
      { numRuns: 2_000 },
    );
  });

  it.each<[string, Prompt, Prompt]>([
    ['where one message ends', chat([user('ab'), user('c')]), chat([user('a'), user('bc')])],
    ['who says it', chat([user('a')]), chat([assistant('a')])],
    ['no content and an empty one', chat([{ role: 'assistant', content: null }]), chat([assistant('')])],
    ['a name and a content', chat([{ role: 'user', content: null, name: 'x' }]), chat([user('x')])],
    ['a conversation and a text', chat([user('x')]), { kind: 'text', text: 'x' }],
    ['a text that spells a tag', chat([user('a\u00f6b')]), chat([user('a'), user('b')])],
    ['a tool and a message', chat([user('x')], [toolOf('y')]), chat([user('y'), user('x')])],
    ['where half a surrogate pair stands', { kind: 'text', text: '\ud800a' }, { kind: 'text', text: 'a\ud800' }],
  ])('tell apart: %s', (_, a, b) => {
    expect(promptBytes(a)).not.toEqual(promptBytes(b));
  });

  it('only grow when a message is appended, tools or not', () => {
    fc.assert(
      fc.property(messages, message, fc.array(tool, { maxLength: 2 }), (before, next, tools) => {
        expect(startsWith(promptBytes(chat([...before, next], tools)), promptBytes(chat(before, tools)))).toBe(true);
      }),
    );
  });

  it('of the next turn begin with those of this one and its answer, however much of the answer there is', () => {
    fc.assert(
      fc.property(messages, fc.string({ maxLength: 30 }), fc.nat(30), message, (before, answer, cut, next) => {
        const bytes = joined(promptBytes(chat(before)), answerHead('chat'), Buffer.from(answer).subarray(0, cut));
        expect(startsWith(promptBytes(chat([...before, assistant(answer), next])), bytes)).toBe(true);
      }),
    );
    expect(joined(promptBytes({ kind: 'text', text: 'a' }), answerHead('text'), Buffer.from('b'))).toEqual(
      promptBytes({ kind: 'text', text: 'ab' }),
    );
    expect(joined(promptBytes({ kind: 'tokens', tokenIds: [1, 70_000] }), answerHead('tokens'), tokenIdBytes([2]))).toEqual(
      promptBytes({ kind: 'tokens', tokenIds: [1, 70_000, 2] }),
    );
  });

  it('have the first system message before the tools, and a second one behind', () => {
    const system = (content: string): ChatMessage => ({ role: 'system', content });
    const order = Buffer.from(promptBytes(chat([system('first'), system('second'), user('third')], [toolOf('tool')]))).toString('latin1');
    const places = ['first', 'tool', 'second', 'third'].map(word => order.indexOf(word));
    expect(places).toEqual(places.toSorted((a, b) => a - b));
    expect(places).not.toContain(-1);
  });
});

describe('hashes', () => {
  const long = (length: number, seed = 'a') => chat([user(seed.repeat(length))]);

  it('are one a whole block, of one length, in the alphabet of base64url', () => {
    for (const length of [0, 253, 254, 255, 509, 510, 5000]) {
      const hashes = prefixHashes(long(length), 'acme');
      expect(hashes).toHaveLength(Math.floor((length + 2) / TEXT_BLOCK_BYTES));
      expect(new Set(hashes).size).toBe(hashes.length);
      for (const hash of hashes) expect(hash).toMatch(new RegExp(`^[A-Za-z0-9_-]{${HASH_LENGTH}}$`));
    }
  });

  it('do not change when they are computed again, by whichever version of the language', () => {
    // Both sides of a deployment compare them: a change here must come with a new PREFIX_VERSION.
    expect(prefixHashes(chat([user('x'.repeat(600))]), 'acme')).toMatchInlineSnapshot(`
      [
        "ff06WU-9tA6",
        "dPnk9YZjmlw",
      ]
    `);
    expect(prefixHashes({ kind: 'text', text: 'é'.repeat(200) }, 'acme')).toMatchInlineSnapshot(`
      [
        "lhvtkujsBT_",
      ]
    `);
  });

  it('are chained: a change in one block changes it and all after it, and none before', () => {
    const bytes = (at?: number) => {
      const content = Array.from({ length: 2000 }, (_, i) => (i === at ? '!' : 'abcdefg'[i % 7])).join('');
      return prefixHashes(chat([user(content)]), 'acme');
    };
    const plain = bytes();
    for (const at of [0, 253, 254, 900]) {
      const first = Math.floor((at + 2) / TEXT_BLOCK_BYTES);
      const other = bytes(at);
      expect(other.slice(0, first)).toEqual(plain.slice(0, first));
      expect(other.slice(first).filter(hash => plain.includes(hash))).toEqual([]);
    }
  });

  it('of the same block at another place, or of another tenant, are others', () => {
    const acme = prefixHashes(long(2000), 'acme');
    expect(new Set(acme).size).toBe(acme.length);
    expect(prefixHashes(long(2000), 'acmf').filter(hash => acme.includes(hash))).toEqual([]);
    expect(prefixHashes(long(2000), '').filter(hash => acme.includes(hash))).toEqual([]);
  });

  it('are the same however the bytes come, and a fork goes its own way', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 2000 }), fc.array(fc.nat(700), { maxLength: 6 }), fc.nat(2000), (bytes, cuts, branch) => {
        const whole = new PrefixChain('acme').push(bytes);
        const chain = new PrefixChain('acme');
        const pieces: string[] = [];
        let at = 0;
        for (const cut of [...cuts, bytes.length]) {
          pieces.push(...chain.push(bytes.subarray(at, at + cut)));
          at = Math.min(bytes.length, at + cut);
        }
        expect(pieces).toEqual(whole);
        const stem = new PrefixChain('acme');
        const before = stem.push(bytes.subarray(0, branch));
        const fork = stem.fork();
        stem.push(new Uint8Array(300));
        expect([...before, ...fork.push(bytes.subarray(branch))]).toEqual(whole);
        expect(fork.byteCount).toBe(bytes.length);
      }),
    );
  });
});
