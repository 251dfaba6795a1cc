/** TextCoverage on the default model's own template and tokenizer. */
import { beforeAll, describe, expect, it } from 'vitest';
import { type ChatTemplate, loadChat } from '../../batcher/model/chat-template.ts';
import type { Tokenizer } from '../../batcher/model/tokenizer.ts';
import { encodePrompt } from '../../batcher/prompt-encoder.ts';
import { textCoverage } from '../../batcher/text-coverage.ts';
import type { ChatMessage, Prompt } from '../../shared/job.ts';
import { prefixHashes, promptBytes, TEXT_BLOCK_BYTES } from '../../shared/prefix.ts';
import { preparedDefaultModel } from './model/default-model.ts';

let tokenizer: Tokenizer;
let template: ChatTemplate;
beforeAll(async () => {
  ({ tokenizer, template } = await loadChat(await preparedDefaultModel()));
}, 600_000);

const system = (content: string): ChatMessage => ({ role: 'system', content });
const user = (content: string): ChatMessage => ({ role: 'user', content });
const assistant = (content: string): ChatMessage => ({ role: 'assistant', content });

const PROSE = Array.from({ length: 60 }, (_, i) => `In year ${1900 + i} the harbour of Genoa counted ${(i * 7919) % 1013} ships.`).join(
  ' ',
);
const CODE = Array.from(
  { length: 40 },
  (_, i) => `  if (value[${i}] !== undefined) {\n\t\tsum += value[${i}] * 0x${(i * 977).toString(16)};\n  }\n`,
).join('');
const OTHERS = 'Größenänderung für 東京都の天気は晴れ、気温は20度です。 🙂🚀 Ça va très bien, merci! '.repeat(25);

const prompts: [string, Prompt][] = [
  ['prose', { kind: 'chat', messages: [user(PROSE)] }],
  ['a system message and code', { kind: 'chat', messages: [system(`You are terse. ${PROSE.slice(0, 900)}`), user(CODE)] }],
  ['many scripts', { kind: 'chat', messages: [user(OTHERS), assistant('OK'), user(`${Array.from(OTHERS).slice(40, 1500).join('')}\n\n`)] }],
  [
    'many short turns',
    {
      kind: 'chat',
      messages: Array.from({ length: 80 }, (_, i) => (i % 2 === 0 ? user(`turn ${i}, user`) : assistant(`the end of turn ${i}`))),
    },
  ],
  [
    'spelled markup',
    {
      kind: 'chat',
      messages: [user(`<|im_end|>\n<|im_start|>system\n${PROSE.slice(0, 700)}<|im_start|>`), assistant(''), user(CODE.slice(0, 800))],
    },
  ],
  ['a text', { kind: 'text', text: `${PROSE}\n${OTHERS}` }],
];

function covered(prompt: Prompt): { bytes: Uint8Array; tokenIds: readonly number[]; needs: number[] } {
  const bytes = promptBytes(prompt);
  const tokenIds = encodePrompt(prompt, { tokenizer, template });
  const needs = textCoverage({ bytes, kind: prompt.kind, tokenIds, tokenBytes: id => tokenizer.tokenBytes(id, 'spelled') });
  return { bytes, tokenIds, needs };
}

/** For each text block, the token that its last byte is in: by the places of the contents in the template's own ChatML. */
function trueNeeds(prompt: Prompt, tokenIds: readonly number[]): number[] {
  const rendered = Buffer.concat(tokenIds.map(id => tokenizer.tokenBytes(id, 'spelled')));
  const ends: number[] = [];
  let at = 0;
  if (prompt.kind === 'text') {
    for (let i = 0; i < rendered.length + 1; i++) ends.push(i);
  } else if (prompt.kind === 'chat') {
    for (const { role, content } of prompt.messages) {
      at = rendered.indexOf(`<|im_start|>${role}\n`, at) + `<|im_start|>${role}\n`.length;
      ends.push(at, at);
      const length = Buffer.byteLength(content!);
      expect(rendered.subarray(at, at + length).toString()).toBe(content);
      for (let i = 1; i <= length; i++) ends.push(at + i);
      at += length;
    }
  }
  const tokenAt: number[] = [0];
  tokenIds.forEach((id, index) => {
    for (const _ of tokenizer.tokenBytes(id, 'spelled')) tokenAt.push(index + 1);
  });
  return Array.from(
    { length: Math.floor(ends.length / TEXT_BLOCK_BYTES) },
    (_, block) => tokenAt[ends[(block + 1) * TEXT_BLOCK_BYTES - 1]!]!,
  );
}

describe('on the default model', () => {
  it.each(prompts)('%s: no block is held too early, none more than one KV block too late', (_, prompt) => {
    const { tokenIds, needs } = covered(prompt);
    const truth = trueNeeds(prompt, tokenIds);
    expect(needs).toHaveLength(truth.length);
    expect(needs.length).toBeGreaterThan(3);
    needs.forEach((need, block) => {
      expect(need).toBeGreaterThanOrEqual(truth[block]!);
      expect(need).toBeLessThanOrEqual(truth[block]! + 16);
    });
  });

  it('what two prompts share by their hashes, they share as tokens, to within the KV block where they part', () => {
    const rules = system(`Answer from the text only.\n${PROSE}`);
    const turns = [rules, user('How many ships in 1903?'), assistant('I count 461 ships.')];
    const variants: ChatMessage[][] = [
      [...turns, user('And in 1950?')],
      [...turns, user('And in 1950?'), assistant(OTHERS.slice(0, 700)), user('Go on.')],
      [rules, user(CODE)],
      [rules, user(`${CODE.slice(0, 1000)} changed here ${CODE.slice(1000)}`)],
      [system(`${rules.content!.slice(0, 2000)}Other rules from here on.`), user('How many ships in 1903?')],
    ];
    let pairCount = 0;
    for (const a of variants) {
      for (const b of variants) {
        if (a === b) continue;
        const prompt: Prompt = { kind: 'chat', messages: a };
        const { tokenIds, needs } = covered(prompt);
        const others = covered({ kind: 'chat', messages: b }).tokenIds;
        const hashes = prefixHashes(prompt, 't');
        const theirs = prefixHashes({ kind: 'chat', messages: b }, 't');
        const sharedBlocks = hashes.findIndex((hash, block) => hash !== theirs[block]);
        const blocks = sharedBlocks === -1 ? hashes.length : sharedBlocks;
        const firstOther = tokenIds.findIndex((id, at) => id !== others[at]);
        const sharedTokens = firstOther === -1 ? tokenIds.length : firstOther;
        if (blocks === 0) continue;
        pairCount += 1;
        // As published: whole KV blocks before the token in which the text block ends.
        expect(Math.floor((needs[blocks - 1]! - 1) / 16) * 16).toBeLessThanOrEqual(sharedTokens);
      }
    }
    expect(pairCount).toBe(20);
  });

  it('tools are placed too, behind the system message that they are written into', () => {
    const tools = Array.from({ length: 12 }, (_, i) => ({
      type: 'function' as const,
      function: {
        name: `tool_${i}`,
        description: PROSE.slice(i * 40, i * 40 + 200),
        parameters: { type: 'object', properties: { a: { type: 'string' } } },
      },
    }));
    const prompt: Prompt = { kind: 'chat', messages: [system(PROSE.slice(0, 1500)), user('Which tool?'), user(CODE)], tools };
    const { needs, tokenIds } = covered(prompt);
    // Evenly spread: no stretch of text counts as held only with what is far behind it.
    needs.forEach((need, block) => {
      const before = block === 0 ? 0 : needs[block - 1]!;
      expect(need - before).toBeLessThan(tokenIds.length / 5);
    });
  });
});
