/** CallParser: the three formats, every way of cutting the text, and what only looks like a call. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CallParser, type CallParserOptions } from '../../../batcher/tools/call-parser.ts';
import type { ToolFormat } from '../../../batcher/tools/tool-format.ts';
import { type CallDelta, joinedCalls } from '../../../shared/token-event.ts';

const NAMES = ['get_weather', 'add_numbers'];

function parserOf(format: ToolFormat, more: Partial<CallParserOptions> = {}): CallParser {
  return new CallParser({ format, names: new Set(NAMES), isForced: false, ...more });
}

interface Told {
  text: string;
  calls: { name: string | undefined; arguments: string }[];
}

/** From pieces; the order within calls is checked. */
function told(parser: CallParser, pieces: readonly string[]): Told {
  const parts = [...pieces.map(piece => parser.push(piece)), parser.end()];
  const calls = joinedCalls(...parts.map(part => part.calls));
  expect(calls.map(call => call.index)).toEqual(calls.map((_, index) => index));
  for (const part of parts) checkNames(part.calls);
  return { text: parts.map(part => part.text).join(''), calls: calls.map(({ name, arguments: json }) => ({ name, arguments: json })) };
}

/** A name comes with the first piece of a call, before any of its arguments. */
function checkNames(calls: readonly CallDelta[]): void {
  for (const [index, call] of calls.entries()) if (index > 0) expect(call.name !== undefined).toBe(call.index !== calls[index - 1]!.index);
}

function whole(format: ToolFormat, text: string, more: Partial<CallParserOptions> = {}): Told {
  return told(parserOf(format, more), [text]);
}

const weather = (city: string) => ({ name: 'get_weather', arguments: `{"city": "${city}"}` });

const TEXTS: [name: string, format: ToolFormat, text: string, expected: Told][] = [
  [
    'a call of hermes',
    'hermes',
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    { text: '', calls: [weather('Paris')] },
  ],
  [
    'text before, two calls, text behind',
    'hermes',
    'Let me see.\n<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>\n<tool_call>{"name":"add_numbers","arguments":{"a":[1,{"b":"}"}]}}</tool_call>\nDone.\n',
    { text: 'Let me see.\n\n\nDone.', calls: [weather('Paris'), { name: 'add_numbers', arguments: '{"a":[1,{"b":"}"}]}' }] },
  ],
  [
    'markup within a string of the arguments',
    'hermes',
    '<tool_call>{"name": "get_weather", "arguments": {"city": "</tool_call> \\"<tool_call>{"}}</tool_call>',
    { text: '', calls: [{ name: 'get_weather', arguments: '{"city": "</tool_call> \\"<tool_call>{"}' }] },
  ],
  [
    'arguments before the name, other keys',
    'hermes',
    '<tool_call>{"id": 7, "arguments": {"city": "Paris"}, "type": "function", "x": [{}], "name": "get_weather"}</tool_call>',
    { text: '', calls: [weather('Paris')] },
  ],
  [
    'arguments as a text of JSON',
    'hermes',
    '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
    { text: '', calls: [weather('Paris')] },
  ],
  [
    'no arguments',
    'hermes',
    '<tool_call>{"name": "get_weather"}</tool_call>',
    { text: '', calls: [{ name: 'get_weather', arguments: '{}' }] },
  ],
  [
    'null for arguments',
    'hermes',
    '<tool_call>{"name": "get_weather", "arguments": null}</tool_call>',
    { text: '', calls: [{ name: 'get_weather', arguments: '{}' }] },
  ],
  [
    'a brace that is missing before the closer',
    'hermes',
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}</tool_call> So.',
    { text: ' So.', calls: [weather('Paris')] },
  ],
  [
    'both braces missing',
    'hermes',
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"</tool_call>',
    { text: '', calls: [{ name: 'get_weather', arguments: '{"city": "Paris"' }] },
  ],
  ['no closer', 'hermes', '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}', { text: '', calls: [weather('Paris')] }],
  [
    'cut off within the arguments',
    'hermes',
    '<tool_call>{"name": "get_weather", "arguments": {"city": "Pa',
    { text: '', calls: [{ name: 'get_weather', arguments: '{"city": "Pa' }] },
  ],
  ...(
    [
      'plain text with < and <tool and </tool_call>',
      '<tool_call> is how calls begin',
      '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
      '<tool_call>{"name": 5}</tool_call>',
      '<tool_call>{"name": "get_weather", "arguments": [1]}</tool_call>',
      '<tool_call>{"name": "get_weather", "arguments": 12}',
      '<tool_call>{name: get_weather}</tool_call>',
      '<tool_call>{"name": "get_wea',
      '<tool_call>',
      '<tool_c',
      '{"name": "get_weather", "arguments": {}}',
      `<tool_call>{"x": "${'y'.repeat(5000)}", "name": "get_weather"}</tool_call>`,
    ] as const
  ).map((text): [string, ToolFormat, string, Told] => [`no call: ${text.slice(0, 60)}`, 'hermes', text, { text, calls: [] }]),
  ['a plain answer, white space and all', 'hermes', '\n Paris. \n', { text: '\n Paris. \n', calls: [] }],
  [
    'a call within what only looked like one',
    'hermes',
    '<tool_call>{"<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
    { text: '<tool_call>{"', calls: [weather('Paris')] },
  ],
  ['a call of llama3, bare', 'llama3', '{"name": "get_weather", "parameters": {"city": "Paris"}}', { text: '', calls: [weather('Paris')] }],
  [
    'two of llama3 behind the tag',
    'llama3',
    '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "get_weather", "arguments": {"city": "Rome"}}',
    { text: '', calls: [weather('Paris'), weather('Rome')] },
  ],
  [
    'two of llama3 on lines of their own',
    'llama3',
    '\n{"name": "get_weather", "parameters": {"city": "Paris"}}\n{"name": "get_weather", "parameters": {"city": "Rome"}}',
    { text: '', calls: [weather('Paris'), weather('Rome')] },
  ],
  ...(
    [
      '{"name": "Bob", "age": 3}',
      '{"name": "get_weather"}',
      'So: {"name": "get_weather", "parameters": {}}',
      '{"city": "Paris"}',
      '{',
      '{"name": "unknown", "parameters": {}}; more',
    ] as const
  ).map((text): [string, ToolFormat, string, Told] => [`no call: ${text}`, 'llama3', text, { text, calls: [] }]),
  [
    'calls of mistral',
    'mistral',
    '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "add_numbers", "arguments": {}, "id": "a"}]',
    { text: '', calls: [weather('Paris'), { name: 'add_numbers', arguments: '{}' }] },
  ],
  [
    'a call of mistral without a list, and text before',
    'mistral',
    'So [1] or [TOOL_CALLS]{"name": "get_weather", "arguments": {"city": "Paris"}}',
    { text: 'So [1] or', calls: [weather('Paris')] },
  ],
  [
    'a list of mistral with something else in it',
    'mistral',
    '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "unknown"}]',
    { text: ', {"name": "unknown"}]', calls: [weather('Paris')] },
  ],
  [
    'newer calls of mistral, with text before and between',
    'mistral',
    'So. [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]add_numbers[ARGS]{"a":{"b":"}["}} And [TOOL_CALLS] get_weather [ARGS] {"city": "Rome"}',
    { text: 'So.  And', calls: [weather('Paris'), { name: 'add_numbers', arguments: '{"a":{"b":"}["}}' }, weather('Rome')] },
  ],
  ['with an id', 'mistral', '[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Paris"}', { text: '', calls: [weather('Paris')] }],
  [
    'whose marks are tokens without text',
    'mistral',
    '[TOOL_CALLS]get_weather{"city": "Paris"}[TOOL_CALLS]get_weathera1B2c3D4e{"city": "Rome"}',
    { text: '', calls: [weather('Paris'), weather('Rome')] },
  ],
  [
    'cut off within its arguments',
    'mistral',
    '[TOOL_CALLS]add_numbers[ARGS]{"a": "1',
    { text: '', calls: [{ name: 'add_numbers', arguments: '{"a": "1' }] },
  ],
  [
    'a call within what only looked like one',
    'mistral',
    '[TOOL_CALLS]get_[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    { text: '[TOOL_CALLS]get_', calls: [weather('Paris')] },
  ],
  ...(
    [
      '[TOOL_CALLS]unknown[ARGS]{"a": 1}',
      '[TOOL_CALLS]get_weather is what I would call',
      '[TOOL_CALLS]get_weather[ARGS] and then',
      '[TOOL_CALLS]get_weather[ARGS]["city"]',
      '[TOOL_CALLS]get_weather[OTHER]{"a": 1}',
      '[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e5[ARGS]{}',
      '[TOOL_CALLS]get_weathera1B2{}',
      '[TOOL_CALLS]get_weather.x{}',
      '[TOOL_CALLS]get_weather',
      '[TOOL_CALLS]get_weather[ARGS]',
      '[TOOL_CALLS][get_weather[ARGS]{}]',
      'get_weather[ARGS]{"city": "Paris"}',
    ] as const
  ).map((text): [string, ToolFormat, string, Told] => [`no call: ${text}`, 'mistral', text, { text, calls: [] }]),
  ['no call: an empty list', 'mistral', '[TOOL_CALLS] []', { text: '[TOOL_CALLS] []', calls: [] }],
];

describe('texts', () => {
  it.each(TEXTS)('%s', (_, format, text, expected) => {
    expect(whole(format, text)).toEqual(expected);
    // Character by character, and cut in two at each place.
    expect(told(parserOf(format), Array.from(text))).toEqual(expected);
    if (text.length > 400) return;
    for (let at = 1; at < text.length; at++) expect(told(parserOf(format), [text.slice(0, at), text.slice(at)])).toEqual(expected);
  });
});

describe('however the text is cut', () => {
  const part = fc.oneof(
    fc.constantFrom(
      '<tool_call>',
      '</tool_call>',
      '<|python_tag|>',
      '[TOOL_CALLS]',
      '{"name": "get_weather", "arguments": ',
      'get_weather',
      '[ARGS]',
      '[CALL_ID]',
      'a1B2c3D4e',
      '{',
      '}',
      '"',
      ';',
      ',',
    ),
    fc.constantFrom('{"name":"add_numbers","parameters":{"a":1}}', '[', ']', '\\', ' ', '\n', '<', '<tool', 'null', '5', '😀', '\u00a0'),
    fc.string({ unit: 'binary', maxLength: 4 }),
  );
  const text = fc.array(part, { maxLength: 14 }).map(parts => parts.join('').toWellFormed());

  it.each(['hermes', 'llama3', 'mistral'] as const)('%s: the same text and calls', format => {
    fc.assert(
      fc.property(text, fc.array(fc.nat(12)), fc.boolean(), (all, lengths, isForced) => {
        const characters = Array.from(all);
        const pieces = lengths.map(length => characters.splice(0, length).join(''));
        const cut = told(parserOf(format, { isForced }), [...pieces, characters.join('')]);
        expect(cut).toEqual(whole(format, all, { isForced }));
        if (isForced) expect(cut.text).toBe('');
      }),
      { numRuns: 1_000 },
    );
  });

  it.each(['hermes', 'llama3', 'mistral'] as const)('%s: nothing of what is no call is lost', format => {
    fc.assert(
      fc.property(text, all => {
        const { text: rest, calls } = whole(format, all);
        if (calls.length === 0) expect(rest).toBe(all);
      }),
      { numRuns: 1_000 },
    );
  });
});

describe('an opener that is a control token', () => {
  it('has no text, whatever becomes of it', () => {
    const text = '[TOOL_CALLS] of course not';
    expect(whole('mistral', text, { openerTokenId: 5 })).toEqual({ text: ' of course not', calls: [] });
  });
});

describe('while it comes', () => {
  it('a call is told as soon as its arguments begin, and they come piece by piece', () => {
    const parser = parserOf('hermes');
    expect(parser.push('Sure. <tool_call>{"name": "get_weather"')).toEqual({ text: 'Sure.', calls: [] });
    expect(parser.push(', "arguments": {')).toEqual({ text: '', calls: [{ index: 0, name: 'get_weather', arguments: '{' }] });
    expect(parser.push('"city": "P')).toEqual({ text: '', calls: [{ index: 0, arguments: '"city": "P' }] });
    expect(parser.isInCall).toBe(true);
    expect(parser.push('aris"}}</tool_call>')).toEqual({ text: '', calls: [{ index: 0, arguments: 'aris"}' }] });
    expect(parser.isInCall).toBe(false);
    expect(parser.callCount).toBe(1);
  });

  it('a long answer of openers takes no more than its length times a bound', () => {
    const parser = parserOf('hermes');
    const text = '<tool_call>{"a":"'.repeat(2_000);
    expect(told(parser, [text]).text).toBe(text);
  });
});
