/** The grammars of calls: each text that fits is told apart into calls that fit their schemas; text and calls beside each other. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { compileStructure } from '../../../batcher/structured/grammar-compilation.ts';
import { DEAD, StateTable } from '../../../batcher/structured/state-table.ts';
import { CallParser } from '../../../batcher/tools/call-parser.ts';
import { callStructureOf, callsOf } from '../../../batcher/tools/job-calls.ts';
import type { ToolSyntax } from '../../../batcher/tools/tool-format.ts';
import type { Job, Structure, Tool, ToolUse } from '../../../shared/job.ts';
import { joinedCalls } from '../../../shared/token-event.ts';
import { BYTES, fits, randomFrom, randomText } from '../structured/structures.ts';

const tool = (name: string, parameters?: unknown): Tool => ({
  type: 'function',
  function: { name, ...(parameters !== undefined && { parameters }) },
});
const TOOLS: Tool[] = [
  tool('get_weather', {
    type: 'object',
    properties: { city: { $ref: '#/$defs/city' }, days: { type: 'integer', minimum: 1, maximum: 9 } },
    required: ['city'],
    $defs: { city: { type: 'string', maxLength: 8 } },
  }),
  tool('find', {
    // Another schema whose parts are called the same.
    properties: { tree: { $ref: '#/$defs/city' } },
    required: ['tree'],
    additionalProperties: false,
    $defs: {
      city: { type: 'object', properties: { next: { $ref: '#/$defs/city' }, v: { enum: ['<tool_call>', '"}', '; {'] } }, required: ['v'] },
    },
  }),
  tool('now'),
];

const use = (more: Partial<ToolUse> = {}): ToolUse => ({
  choice: 'required',
  isParallel: true,
  schemaParam: 'tools[].function.parameters',
  ...more,
});
const asking = (toolUse: ToolUse, structure?: Structure): Pick<Job, 'prompt' | 'toolUse' | 'structure'> => ({
  prompt: { kind: 'chat', messages: [{ role: 'user', content: 'x' }], tools: TOOLS },
  toolUse,
  ...(structure && { structure }),
});

function tableOf(job: ReturnType<typeof asking>, syntax: ToolSyntax): StateTable {
  return new StateTable(compileStructure(callStructureOf(job, syntax)!, BYTES));
}

const ajv = new Ajv2020({ strict: false });
const checks = new Map(
  TOOLS.map(({ function: { name, parameters } }) => [name, ajv.compile((parameters ?? { maxProperties: 0 }) as object)]),
);

function callsIn(text: string, job: ReturnType<typeof asking>, syntax: ToolSyntax) {
  const parser = new CallParser(callsOf(job, syntax)!);
  const parts = [parser.push(text), parser.end()];
  return { text: parts.map(part => part.text).join(''), calls: joinedCalls(...parts.map(part => part.calls)) };
}

function expectValid(calls: readonly { name?: string; arguments: string }[]): void {
  for (const call of calls) {
    const check = checks.get(call.name!)!;
    expect(check(JSON.parse(call.arguments)), `${call.name} ${call.arguments}`).toBe(true);
  }
}

const SYNTAXES: [name: keyof typeof SAMPLES, syntax: ToolSyntax][] = [
  ['hermes', { format: 'hermes' }],
  ['llama3', { format: 'llama3' }],
  ['mistral', { format: 'mistral' }],
  ['mistral by name', { format: 'mistral', named: { hasIds: false } }],
  ['mistral by name and id', { format: 'mistral', named: { hasIds: true } }],
];

describe.each(SYNTAXES)('%s', (name, syntax) => {
  it('must call: whatever fits is calls that fit their schemas', () => {
    const job = asking(use());
    const table = tableOf(job, syntax);
    const counts = new Set<number>();
    const names = new Set<string>();
    for (let seed = 0; seed < 60; seed++) {
      const text = randomText(table, randomFrom(seed));
      if (text === undefined) continue;
      const told = callsIn(text, job, syntax);
      expect(told.text).toBe('');
      expectValid(told.calls);
      counts.add(told.calls.length);
      for (const call of told.calls) names.add(call.name!);
    }
    expect(names).toEqual(new Set(['get_weather', 'find', 'now']));
    expect(counts.size).toBeGreaterThan(1);
    expect(counts).not.toContain(0);
  });

  it('one call, of those that are named', () => {
    const job = asking(use({ names: ['find'], isParallel: false }));
    const table = tableOf(job, syntax);
    for (let seed = 0; seed < 20; seed++) {
      const text = randomText(table, randomFrom(seed));
      if (text === undefined) continue;
      const { calls } = callsIn(text, job, syntax);
      expect(calls.map(call => call.name)).toEqual(['find']);
      expectValid(calls);
    }
  });

  it('text that fits a structure, or calls', () => {
    const structure: Structure = {
      kind: 'schema',
      param: 'response_format',
      schema: { type: 'object', properties: { a: { const: 1 } }, required: ['a'] },
    };
    const job = asking(use({ choice: 'auto' }), structure);
    const table = tableOf(job, syntax);
    expect(fits(table, '{"a":1}')).toBe(true);
    expect(callsIn('{"a":1}', job, syntax)).toEqual({ text: '{"a":1}', calls: [] });
    expect(fits(table, '{"a":2}')).toBe(false);
    expect(fits(table, 'text')).toBe(false);
    let called = 0;
    for (let seed = 0; seed < 40; seed++) {
      const text = randomText(table, randomFrom(seed));
      if (text !== undefined && callsIn(text, job, syntax).calls.length > 0) called++;
    }
    expect(called).toBeGreaterThan(5);
  });

  it('may call: any text goes, and a call once begun is held to its schema', () => {
    const job = asking(use({ choice: 'auto', strictNames: ['get_weather'] }));
    const table = tableOf(job, syntax);
    for (const text of ['', 'Paris.', 'a < b, [1] and <tool', '<<tool_<tool_', '😀\n\n', ' [TOOL_CALLS'])
      expect(fits(table, text), text).toBe(true);
    const { opener, good, bad } = SAMPLES[name];
    expect(fits(table, good)).toBe(true);
    expect(callsIn(good, job, syntax).calls).toEqual([{ index: 0, name: 'get_weather', arguments: '{"city": "Oslo"}' }]);
    for (const text of bad) expect(fits(table, opener + text), text).toBe(false);
  });
});

const SAMPLES = {
  hermes: {
    opener: 'So.\n<tool_call>',
    good: 'So.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\nMore.',
    bad: [
      ' of course',
      '\n{"name": "unknown',
      '{"name": "get_weather", "arguments": {"town',
      '{"name": "get_weather", "arguments": {"city": "Oslo", "days": 0',
    ],
  },
  llama3: {
    opener: '',
    good: '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
    bad: ['{"a": 1}', ' {', '{"name": "get_weather", "parameters": {"city": 5'],
  },
  mistral: {
    opener: 'So. [TOOL_CALLS]',
    good: 'So. [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
    bad: [' no', '[{"name": "x'],
  },
  'mistral by name': {
    opener: 'So. [TOOL_CALLS]',
    good: 'So. [TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}',
    bad: [
      ' no',
      '[{"name": "get_weather"',
      'unknown',
      'get_weather{',
      'get_weather[CALL_ID]',
      'get_weather[ARGS]{"town',
      'get_weather[ARGS] ',
    ],
  },
  'mistral by name and id': {
    opener: 'So. [TOOL_CALLS]',
    good: 'So. [TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Oslo"}',
    bad: ['get_weather[ARGS]', 'get_weather[CALL_ID]a1B2c3D4[', 'get_weather[CALL_ID]a1B2c3D4ef', 'get_weather[CALL_ID]a1B2-'],
  },
} as const;

describe('an opener that is a control token', () => {
  it('begins calls, and its spelling does not', () => {
    // Token 300 spells nothing: the table knows it by its number.
    const syntax = { format: 'mistral', openerTokenId: 300 } as const;
    const table = tableOf(asking(use()), syntax);
    expect(table.afterByte(table.start, '['.charCodeAt(0))).toBe(DEAD);
    const opened = table.afterControl(table.start, table.automaton.controls.indexOf(300));
    let state = opened;
    for (const byte of new TextEncoder().encode('[{"name": "now", "arguments": {}}]')) state = table.afterByte(state, byte);
    expect(table.mayEnd(state)).toBe(true);
  });

  it('so do the marks of calls by name, several of which follow each other', () => {
    const syntax: ToolSyntax = { format: 'mistral', openerTokenId: 300, named: { hasIds: true, idTokenId: 301, argumentsTokenId: 302 } };
    const stateAfter = (table: StateTable, ...parts: (string | number)[]) =>
      parts.reduce<number>((state, part) => {
        if (typeof part === 'number') return table.afterControl(state, table.automaton.controls.indexOf(part));
        return new TextEncoder().encode(part).reduce((at, byte) => table.afterByte(at, byte), state);
      }, table.start);
    const table = tableOf(asking(use()), syntax);
    const one = [300, 'now', 301, 'a1B2c3D4e', 302, '{}'];
    expect(table.mayEnd(stateAfter(table, ...one))).toBe(true);
    expect(table.mayEnd(stateAfter(table, ...one, ...one))).toBe(true);
    expect(stateAfter(table, 300, 'now[')).toBe(DEAD);
    expect(stateAfter(table, 300, 'now', 302)).toBe(DEAD);
    expect(stateAfter(table, 300, 'now', 301, 'a1B2', 302)).toBe(DEAD);
    const alone = tableOf(asking(use({ isParallel: false })), syntax);
    expect(alone.mustEnd(stateAfter(alone, ...one))).toBe(true);
  });
});

describe('what has no form', () => {
  const syntax = { format: 'hermes' } as const;
  it('free text with calls that nothing is asked of', () => {
    expect(callStructureOf(asking(use({ choice: 'auto' })), syntax)).toBeUndefined();
    expect(callStructureOf({ ...asking(use()), toolUse: undefined } as never, syntax)).toBeUndefined();
    expect(callsOf({ ...asking(use()), toolUse: undefined } as never, syntax)).toBeUndefined();
  });

  it('at most one call of its own accord: any arguments, and then the end', () => {
    const job = asking(use({ choice: 'auto', isParallel: false }));
    const table = tableOf(job, syntax);
    const call = '<tool_call>\n{"name": "find", "arguments": {"anything": [1]}}\n</tool_call>';
    expect(fits(table, `So. ${call}`)).toBe(true);
    expect(fits(table, `${call}\n`)).toBe(false);
  });
});

describe('a schema that cannot be held to', () => {
  it('is told by its function and its place', () => {
    const job = asking(use());
    const tools = [...TOOLS, tool('f', { type: 'object', properties: { a: { not: {} } } })];
    const structure = callStructureOf({ ...job, prompt: { ...job.prompt, tools } as never }, { format: 'hermes' })!;
    expect(() => compileStructure(structure, BYTES)).toThrow(
      expect.objectContaining({ where: '#/properties/a/not', param: 'tools[3].function.parameters' }),
    );
  });
});
