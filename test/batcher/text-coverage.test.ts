/** Which tokens hold which text blocks, on small vocabularies of bytes and on templates that mistreat what they are given. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { textCoverage } from '../../batcher/text-coverage.ts';
import type { ChatMessage } from '../../shared/job.ts';
import { promptBytes, TEXT_BLOCK_BYTES } from '../../shared/prefix.ts';

/** A token a byte: then the number of tokens that hold a text is the place where it ends. */
const byteTokens = (text: string) => [...Buffer.from(text)];
const byteOf = (id: number) => Uint8Array.of(id);

const user = (content: string): ChatMessage => ({ role: 'user', content });
const assistant = (content: string): ChatMessage => ({ role: 'assistant', content });

type Template = (message: ChatMessage) => [before: string, content: string, after: string];
const chatml: Template = ({ role, content }) => [`<|im_start|>${role}\n`, content ?? '', '<|im_end|>\n'];

/** For each text block where its last byte of content ends in the rendered prompt, worked out from the places of the contents. */
function truth(messages: ChatMessage[], template: Template): { rendered: string; ends: number[] } {
  const bytes = promptBytes({ kind: 'chat', messages });
  const renderedEnd = new Int32Array(bytes.length);
  let rendered = '';
  let at = 0;
  for (const message of messages) {
    const [before, content, after] = template(message);
    rendered += before;
    // Role and content tags.
    renderedEnd[at++] = Buffer.byteLength(rendered);
    renderedEnd[at++] = Buffer.byteLength(rendered);
    const start = Buffer.byteLength(rendered);
    const length = Buffer.byteLength(message.content ?? '');
    for (let i = 0; i < length; i++) renderedEnd[at++] = start + Math.min(i + 1, Buffer.byteLength(content));
    rendered += content + after;
  }
  expect(at).toBe(bytes.length);
  const ends = Array.from({ length: Math.floor(at / TEXT_BLOCK_BYTES) }, (_, block) => renderedEnd[(block + 1) * TEXT_BLOCK_BYTES - 1]!);
  return { rendered, ends };
}

function coverage(messages: ChatMessage[], rendered: string): number[] {
  const bytes = promptBytes({ kind: 'chat', messages });
  return textCoverage({ bytes, kind: 'chat', tokenIds: byteTokens(rendered), tokenBytes: byteOf });
}

const words = fc
  .array(fc.constantFrom('the', 'end', 'user', 'im_start', '\n', '<|', '|>', 'Zürich', '漢字', '🙂', 'a', 'assistant', '  '), {
    maxLength: 120,
  })
  .map(each => each.join(' '));
const conversation = fc.array(fc.record({ role: fc.constantFrom('user' as const, 'assistant' as const), content: words }), {
  minLength: 1,
  maxLength: 8,
});

describe('in a template that writes every content', () => {
  it('no block is held too early, and none much too late', () => {
    fc.assert(
      fc.property(conversation, messages => {
        const { rendered, ends } = truth(messages, chatml);
        const needs = coverage(messages, `${rendered}<|im_start|>assistant\n`);
        expect(needs).toHaveLength(ends.length);
        needs.forEach((need, block) => {
          expect(need).toBeGreaterThanOrEqual(ends[block]!);
          expect(need).toBeLessThanOrEqual(ends[block]! + 100);
          if (block > 0) expect(need).toBeGreaterThanOrEqual(needs[block - 1]!);
        });
      }),
      { numRuns: 300 },
    );
  });

  it('a single text is placed exactly, but for its end', () => {
    const content = Array.from({ length: 400 }, (_, i) => `sentence ${i * 7919}. `).join('');
    const { rendered, ends } = truth([user(content)], chatml);
    expect(coverage([user(content)], rendered).slice(0, -1)).toEqual(ends.slice(0, -1));
  });

  it('a text of one letter only is placed as late as the markup behind it', () => {
    const { rendered, ends } = truth([user('a'.repeat(3000))], chatml);
    coverage([user('a'.repeat(3000))], `${rendered}<|im_start|>assistant\n`).forEach((need, block) => {
      expect(need).toBeGreaterThanOrEqual(ends[block]!);
      expect(need).toBeLessThanOrEqual(ends[block]! + 40);
    });
  });
});

const prose = (count: number, seed: number) =>
  Array.from({ length: count }, (_, i) => `Clause ${(i * 7919 + seed) % 1009} says so. `).join('');

describe('in a template that', () => {
  it('trims contents, white space at the end is no matter', () => {
    const messages = [user(`${prose(30, 1)}\n\n  `), assistant(`\n ${prose(30, 2)}\t`), user(prose(30, 3))];
    const trim: Template = message => ['[', message.content!.trim(), ']'];
    const { rendered } = truth(messages, trim);
    const needs = coverage(messages, rendered);
    const middle = needs.map(need => need / rendered.length);
    // Spread over the prompt, not all at its end.
    expect(middle[0]).toBeLessThan(0.15);
    expect(middle[Math.floor(middle.length / 2)]).toBeLessThan(0.6);
  });

  it('leaves a message out, it counts as held when what follows it is, and what is before it is placed all the same', () => {
    const messages = [user(prose(40, 1)), assistant(prose(40, 500)), user(prose(40, 3))];
    const dropping: Template = message => (message.role === 'assistant' ? ['', '', ''] : chatml(message));
    const { rendered } = truth(messages, dropping);
    const needs = coverage(messages, rendered);
    const first = Buffer.byteLength(chatml(messages[0]!).join(''));
    const blocksOfFirst = Math.floor(Buffer.byteLength(messages[0]!.content!) / TEXT_BLOCK_BYTES);
    for (let block = 0; block < blocksOfFirst; block++) expect(needs[block]).toBeLessThanOrEqual(first);
    expect(needs[blocksOfFirst + 1]).toBeGreaterThan(first);
  });

  it('writes something quite different, nothing is held before all is', () => {
    const needs = coverage([user(prose(40, 1)), assistant(prose(40, 2))], '#'.repeat(5000));
    expect(new Set(needs)).toEqual(new Set([5000]));
  });

  it('writes nothing, all is held by nothing', () => {
    expect(coverage([user('x'.repeat(600))], '')).toEqual([0, 0]);
  });
});

describe('other prompts', () => {
  it('a text', () => {
    const text = prose(40, 1);
    const bytes = promptBytes({ kind: 'text', text });
    const needs = textCoverage({ bytes, kind: 'text', tokenIds: byteTokens(text), tokenBytes: byteOf });
    // One byte names the kind.
    expect(needs).toEqual(needs.map((_, block) => (block + 1) * TEXT_BLOCK_BYTES - 1));
  });

  it('token ids are four bytes each, whatever they spell', () => {
    const tokenIds = Array.from({ length: 200 }, (_, i) => i);
    const bytes = promptBytes({ kind: 'tokens', tokenIds });
    expect(textCoverage({ bytes, kind: 'tokens', tokenIds, tokenBytes: () => new Uint8Array(0) })).toEqual([64, 128, 192]);
  });

  it('shorter than a block', () => {
    expect(coverage([user('hi')], 'hi')).toEqual([]);
  });
});

it('a long conversation that a template leaves out takes work in proportion to its length', () => {
  let reads = 0;
  const messages = Array.from({ length: 2000 }, (_, i) => user(`message ${i}`));
  const bytes = promptBytes({ kind: 'chat', messages });
  const tokenIds = byteTokens('#'.repeat(100_000));
  textCoverage({
    bytes,
    kind: 'chat',
    tokenIds,
    tokenBytes: id => {
      reads += 1;
      return byteOf(id);
    },
  });
  expect(reads).toBeLessThan(65_536 + 20 * (bytes.length + tokenIds.length));
});
