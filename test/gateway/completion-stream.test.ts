/** CompletionStream and CompletionBody: the same answer in two forms, whatever the events hold; and the old shape of log-probabilities. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CompletionBody } from '../../gateway/completion-body.ts';
import { type CompletionChoiceOut, CompletionLogprobs, type CompletionLogprobsOut } from '../../gateway/completion-response.ts';
import { completionStream } from '../../gateway/completion-stream.ts';
import type { DeltaEvent, EchoEvent, EchoedToken, FinishEvent, TokenLogprob } from '../../shared/token-event.ts';
import { parseSse } from './sse-client.ts';

const head = { id: 'cmpl-1', created: 1, model: 'm"\n' };
const finish: FinishEvent = {
  type: 'finish',
  id: 'j',
  attempt: 1,
  seq: 99,
  usage: { promptTokens: 3, completionTokens: 2, cachedTokens: 1 },
  timings: { queueMs: 0, prefillMs: 0, ttftMs: 0, decodeTokensPerSecond: 0 },
};

interface Chunk {
  object: string;
  model: string;
  choices: CompletionChoiceOut[];
  usage?: object | null;
}

const entry = (text: string | number[], logprob: number, top: [string, number][] = []): TokenLogprob => {
  const bytes = typeof text === 'string' ? Array.from(new TextEncoder().encode(text)) : text;
  const token = typeof text === 'string' ? text : `\\x${text.map(byte => byte.toString(16)).join('\\x')}`;
  return { token, tokenId: 1, logprob, bytes, top: top.map(([name, value]) => ({ token: name, tokenId: 2, logprob: value, bytes: [] })) };
};

function delta(seq: number, choice: number, text: string, more: Partial<DeltaEvent> = {}): DeltaEvent {
  return { type: 'delta', id: 'j', attempt: 1, seq, choice, tokenIds: [], text, ...more };
}

function echo(seq: number, prompt: number, text: string, tokens?: EchoedToken[]): EchoEvent {
  return { type: 'echo', id: 'j', attempt: 1, seq, prompt, tokenCount: 1, text, ...(tokens && { tokens }) };
}

function chunksOf(text: string): Chunk[] {
  return parseSse(text).events.flatMap(event => (event.data === '[DONE]' ? [] : [JSON.parse(event.data) as Chunk]));
}

function joined(chunks: Chunk[], index: number): { text: string; logprobs: CompletionLogprobsOut } {
  const own = chunks.flatMap(chunk => chunk.choices.filter(choice => choice.index === index));
  const parts = own.flatMap(choice => choice.logprobs ?? []);
  return {
    text: own.map(choice => choice.text).join(''),
    logprobs: {
      tokens: parts.flatMap(part => part.tokens),
      token_logprobs: parts.flatMap(part => part.token_logprobs),
      top_logprobs: parts.flatMap(part => part.top_logprobs),
      text_offset: parts.flatMap(part => part.text_offset),
    },
  };
}

test('any interleaving of prompts and choices: streamed and whole say the same', () => {
  const step = fc.tuple(
    fc.nat(3),
    fc.string({ unit: 'binary', maxLength: 5 }).map(text => text.toWellFormed()),
  );
  fc.assert(
    fc.property(
      fc.array(step),
      fc.array(
        fc.tuple(
          fc.nat(1),
          step.map(([, text]) => text),
        ),
      ),
      fc.boolean(),
      (steps, echoes, includeUsage) => {
        const shape = { head, promptCount: 2, choiceCount: 2, wantsLogprobs: true };
        const stream = completionStream({ ...shape, includeUsage });
        const body = new CompletionBody({ ...shape, keptCount: 2 });
        let seq = 0;
        const events = [
          ...echoes.map(([prompt, text]) => echo(seq++, prompt, text, [entry(text, -1)])),
          ...steps.map(([choice, text]) => delta(seq++, choice, text, { logprobs: [entry(text, -1, [['x', -2]])] })),
          ...[2, 0, 3, 1].map(choice => delta(seq++, choice, '', { finishReason: 'length' })),
        ];
        let text = '';
        for (const event of events) {
          text += stream.write(event);
          if (event.seq % 3 === 0) text += stream.heartbeat('working');
          expect(body.write(event)).toBe('');
        }
        expect(text.match(/"finish_reason":"length"/g)).toHaveLength(3);
        text += stream.write(finish);
        const whole = JSON.parse(body.write(finish)) as Chunk;
        const chunks = chunksOf(text);
        expect(whole).toMatchObject({ object: 'text_completion', model: head.model, usage: { prompt_tokens: 3, total_tokens: 5 } });
        expect(whole.choices.map(choice => choice.index)).toEqual([0, 1, 2, 3]);
        for (const choice of whole.choices) {
          expect(joined(chunks, choice.index)).toEqual({ text: choice.text, logprobs: choice.logprobs });
          const reasons = chunks.flatMap(chunk =>
            chunk.choices.filter(({ index }) => index === choice.index).map(each => each.finish_reason),
          );
          expect(reasons.filter(reason => reason !== null)).toEqual(['length']);
          expect(reasons.at(-1)).toBe('length');
        }
        expect(chunks.filter(chunk => chunk.choices.length === 0)).toHaveLength(includeUsage ? 1 : 0);
        expect(chunks.every(chunk => 'usage' in chunk === includeUsage)).toBe(true);
      },
    ),
  );
});

test('of more choices than were asked for the likeliest per token are kept, of each prompt its own', () => {
  const body = new CompletionBody({ head, promptCount: 2, choiceCount: 3, keptCount: 2, wantsLogprobs: false });
  const logprobs = [[-1, -1], [-0.5, -0.9, -0.5], [-0.1, -4], [], [-9], [-8]];
  for (const [choice, values] of logprobs.entries()) {
    body.write(delta(choice, choice, `${choice}`, { logprobs: values.map(value => entry('a', value)), finishReason: 'stop' }));
  }
  const { choices } = JSON.parse(body.write(finish)) as Chunk;
  expect(choices.map(({ index, text, logprobs: out }) => [index, text, out])).toEqual([
    [0, '1', null],
    [1, '0', null],
    [2, '5', null],
    [3, '4', null],
  ]);
});

describe('log-probabilities', () => {
  const take = (entries: EchoedToken[]) => new CompletionLogprobs().take(entries);

  test('offsets are in characters, and a part of a character begins where it does', () => {
    const face = Array.from(new TextEncoder().encode('😀'));
    const entries = [entry('é', -1), entry(face.slice(0, 2), -1), entry(face.slice(2), -1), entry('a', -1), entry('', -1), entry('b', -1)];
    expect(take(entries).text_offset).toEqual([0, 1, 1, 2, 3, 3]);
    const logprobs = new CompletionLogprobs();
    expect(entries.flatMap(one => logprobs.take([one]).text_offset)).toEqual([0, 1, 1, 2, 3, 3]);
  });

  test('the chosen token is always among the likely ones, and of one spelling the likelier stands', () => {
    const out = take([
      entry('c', -5, [
        ['a', -1],
        ['a', -3],
        ['__proto__', -4],
      ]),
      entry('a', -1, [['a', -1]]),
    ]);
    expect(Object.entries(out.top_logprobs[0]!)).toEqual([
      ['a', -1],
      ['__proto__', -4],
      ['c', -5],
    ]);
    expect(out.top_logprobs[1]).toEqual({ a: -1 });
  });

  test('the first token of a prompt has none', () => {
    expect(take([{ ...entry('a', 0), logprob: null }])).toEqual({
      tokens: ['a'],
      token_logprobs: [null],
      top_logprobs: [null],
      text_offset: [0],
    });
  });
});

test('an event of a prompt or choice that nobody asked for adds nothing', () => {
  const shape = { head, promptCount: 1, choiceCount: 1, wantsLogprobs: false };
  const stream = completionStream({ ...shape, includeUsage: false });
  expect(stream.write(delta(0, 5, 'x')) + stream.write(echo(1, 3, 'x'))).toBe('');
  const body = new CompletionBody({ ...shape, keptCount: 1 });
  body.write(delta(0, 5, 'x'));
  body.write(echo(1, 3, 'x'));
  expect((JSON.parse(body.write(finish)) as Chunk).choices).toMatchObject([{ index: 0, text: '' }]);
});
