/** ReasoningParser: what is reasoning and what the answer, every way of cutting the text, and which prompts lead to it. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AnswerParser } from '../../../batcher/reasoning/answer-parser.ts';
import { ReasoningParser } from '../../../batcher/reasoning/reasoning-parser.ts';
import { type Reasoning, reasoningOf, reasoningSyntaxOf } from '../../../batcher/reasoning/reasoning-syntax.ts';

type Start = Reasoning['start'];

function told(start: Start, pieces: readonly string[]) {
  const parser = new ReasoningParser({ start });
  const parts = [...pieces.map(piece => parser.push(piece)), parser.end()];
  return { reasoning: parts.map(part => part.reasoning).join(''), text: parts.map(part => part.text).join('') };
}

const TEXTS: [name: string, start: Start, text: string, reasoning: string, rest: string][] = [
  ['opened by the answer', 'possible', '<think>\nLet me see.\n\nSo.\n</think>\n\nParis.\n', 'Let me see.\n\nSo.', 'Paris.\n'],
  ['opened behind white space', 'possible', ' \n<think>a</think>b', 'a', 'b'],
  ['begun by the prompt', 'begun', 'Let me see.\n</think>\n\nParis.', 'Let me see.', 'Paris.'],
  ['none', 'possible', 'Paris. <think>no</think>', '', 'Paris. <think>no</think>'],
  ['none, and white space first', 'possible', '\n\n Paris', '', '\n\n Paris'],
  ['empty', 'possible', '<think>\n\n</think>\n\nParis', '', 'Paris'],
  ['empty and begun', 'begun', '\n</think>Paris', '', 'Paris'],
  ['cut off', 'possible', '<think>Let me </thi', 'Let me </thi', ''],
  ['cut off behind it', 'begun', 'x</think>\n\n', 'x', ''],
  ['cut off in the opener', 'possible', '\n<thin', '', '\n<thin'],
  ['what looks like the closer', 'begun', 'a < b, <</think', 'a < b, <</think', ''],
  ['what looks like it, and then is', 'begun', 'a <</</think>b', 'a <</', 'b'],
  ['another opener within', 'begun', '<think>a</think>b</think>c', '<think>a', 'b</think>c'],
  ['another tag', 'possible', '<thing>', '', '<thing>'],
  ['more white space than a beginning has', 'possible', `${' '.repeat(70)}<think>a</think>`, '', `${' '.repeat(70)}<think>a</think>`],
];

describe('texts', () => {
  it.each(TEXTS)('%s', (_, start, text, reasoning, rest) => {
    expect(told(start, [text])).toEqual({ reasoning, text: rest });
    expect(told(start, Array.from(text))).toEqual({ reasoning, text: rest });
    for (let at = 1; at < text.length; at++) expect(told(start, [text.slice(0, at), text.slice(at)])).toEqual({ reasoning, text: rest });
  });

  it('however they are cut, the same; and nothing is lost but white space and marks', () => {
    const part = fc.constantFrom('<think>', '</think>', '<', '/', 'think>', ' ', '\n', 'a', '😀', '<tool_call>', '\u00a0');
    const text = fc.array(part, { maxLength: 12 }).map(parts => parts.join(''));
    const bare = (from: string) => from.replace(/\s/gu, '');
    fc.assert(
      fc.property(text, fc.constantFrom<Start>('begun', 'possible'), fc.array(fc.nat(8)), (all, start, lengths) => {
        const characters = Array.from(all);
        const pieces = lengths.map(length => characters.splice(0, length).join(''));
        const whole = told(start, [all]);
        expect(told(start, [...pieces, characters.join('')])).toEqual(whole);
        const marks = ['', '<think>', '</think>', '<think></think>'];
        const joins = marks.flatMap(mark => [
          bare(whole.reasoning) + mark + bare(whole.text),
          `<think>${bare(whole.reasoning)}${mark}${bare(whole.text)}`,
        ]);
        expect(joins).toContain(bare(all));
      }),
      { numRuns: 2_000 },
    );
  });

  it('while it comes, each part is told as soon as it is certain', () => {
    const parser = new ReasoningParser({ start: 'possible' });
    expect(parser.push('<thi')).toEqual({ reasoning: '', text: '' });
    expect(parser.openingLength).toBe(4);
    expect(parser.push('nk>\nLet me')).toEqual({ reasoning: 'Let me', text: '' });
    expect([parser.isReasoning, parser.isApart]).toEqual([true, true]);
    expect(parser.push(' see <')).toEqual({ reasoning: ' see', text: '' });
    expect(parser.push('/think>\n')).toEqual({ reasoning: '', text: '' });
    expect([parser.isReasoning, parser.isApart, parser.isTextAgain]).toEqual([false, true, false]);
    expect(parser.push('P')).toEqual({ reasoning: '', text: 'P' });
    expect([parser.isApart, parser.isTextAgain]).toEqual([false, true]);
    expect(parser.push('aris')).toEqual({ reasoning: '', text: 'aris' });
    expect(parser.isTextAgain).toBe(false);
  });
});

describe('with calls behind it', () => {
  it('a call within the reasoning is none', () => {
    const calls = { format: 'hermes', names: new Set(['f']), isForced: true } as const;
    const parser = new AnswerParser({ reasoning: { start: 'possible' }, calls });
    const call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>';
    const parsed = parser.push(`<think>Like ${call}?</think>\n${call}`);
    expect(parsed).toEqual({
      reasoning: `Like ${call}?`,
      text: '',
      calls: [{ index: 0, name: 'f', arguments: '{}' }],
    });
    expect(parser.callCount).toBe(1);
  });
});

describe('whether a model reasons', () => {
  const none = () => undefined;
  it('its template tells, unless the operator does', () => {
    expect(reasoningSyntaxOf(undefined, 'x', none)).toBeUndefined();
    expect(reasoningSyntaxOf(undefined, '…</think>…', none)).toEqual({});
    expect(reasoningSyntaxOf('none', '…</think>…', none)).toBeUndefined();
    expect(reasoningSyntaxOf('think', 'x', mark => mark.length)).toEqual({ openerTokenId: 7, closerTokenId: 8 });
  });

  const spelled = (id: number) => Uint8Array.of(id);
  const of = (text: string, kind: 'chat' | 'text' = 'chat') =>
    reasoningOf({ prompt: { kind }, tokenIds: [...new TextEncoder().encode(text)] }, {}, spelled);
  it('the end of the prompt tells where the answer begins', () => {
    expect(of('<|assistant|>\n')).toEqual({ start: 'possible' });
    expect(of('<|assistant|>\n<think>\n')).toEqual({ start: 'begun' });
    expect(of('<|assistant|>\n<think>\n\n</think>\n\n')).toBeUndefined();
    expect(of('the mark <think> is no end <|assistant|>')).toEqual({ start: 'possible' });
    expect(of('<think>\n', 'text')).toBeUndefined();
    expect(reasoningOf({ prompt: { kind: 'chat' }, tokenIds: [] }, undefined, spelled)).toBeUndefined();
  });
});
