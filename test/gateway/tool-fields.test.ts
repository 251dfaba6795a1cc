/** ToolFields: what becomes of tools and the choice among them, and what is refused, by the name of the field. */
import { describe, expect, it } from 'vitest';
import { parseChatRequest } from '../../gateway/chat-request.ts';
import type { JsonObject } from '../../gateway/json-body.ts';

const parse = (body: object) =>
  parseChatRequest({ model: 'm', messages: [{ role: 'user', content: 'x' }], ...body } as JsonObject, { maxMessageCount: 100 });
const tool = (name: string, more: object = {}) => ({ type: 'function', function: { name, ...more } });
const named = (name: string) => ({ type: 'function', function: { name } });
const TWO = [
  tool('f', { parameters: { type: 'object', properties: {} }, strict: true }),
  tool('g', { description: 'adds', strict: false }),
];

describe('what a job has of them', () => {
  it('the tools as templates take them, in the order of the contract', () => {
    const { job, isPromptUncertain, promptTokensBound } = parse({
      tools: [{ function: { strict: true, parameters: { b: 1, a: 2 }, name: 'f', description: 'd' }, type: 'function' }],
    });
    expect(JSON.stringify((job.prompt as { tools: unknown }).tools)).toBe(
      '[{"type":"function","function":{"name":"f","description":"d","parameters":{"b":1,"a":2}}}]',
    );
    expect(isPromptUncertain).toBe(true);
    expect(promptTokensBound).toBeGreaterThan(parse({}).promptTokensBound + 1_000);
  });

  it.each<[choice: object, expected: object | undefined]>([
    [{}, { choice: 'auto', isParallel: true, strictNames: ['f'] }],
    [
      { tool_choice: null, parallel_tool_calls: false },
      { choice: 'auto', isParallel: false, strictNames: ['f'] },
    ],
    [{ tool_choice: 'required' }, { choice: 'required', isParallel: true, strictNames: ['f'] }],
    [{ tool_choice: named('g') }, { choice: 'required', names: ['g'], isParallel: false, strictNames: ['f'] }],
    [
      { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [named('g'), named('g')] } } },
      { choice: 'auto', names: ['g'], isParallel: true, strictNames: ['f'] },
    ],
    [{ tool_choice: 'none' }, undefined],
  ])('%j', (choice, expected) => {
    const { job } = parse({ tools: TWO, ...choice });
    expect(job.toolUse).toEqual(expected && { ...expected, schemaParam: 'tools[].function.parameters' });
    expect('tools' in job.prompt).toBe(expected !== undefined);
  });

  it('nothing of an empty list, whatever is said of it', () => {
    for (const more of [{}, { tool_choice: 'auto' }, { tool_choice: 'none' }, { parallel_tool_calls: true }]) {
      expect(parse({ tools: [], ...more }).job).toEqual(parse({}).job);
    }
  });
});

describe('what is refused', () => {
  const wide = Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [`property_${i}`, {}]));
  it.each<[body: object, param: string, code: string]>([
    [{ tools: {} }, 'tools', 'invalid_value'],
    [{ tools: [{}] }, 'tools[0].type', 'missing_required_parameter'],
    [{ tools: [{ type: 'web_search' }] }, 'tools[0].type', 'invalid_value'],
    [{ tools: [{ type: 'custom', custom: { name: 'f' } }] }, 'tools[0]', 'unsupported_parameter'],
    [{ tools: [{ type: 'function' }] }, 'tools[0].function', 'missing_required_parameter'],
    [{ tools: [tool('f'), { type: 'function', function: {} }] }, 'tools[1].function.name', 'missing_required_parameter'],
    [{ tools: [tool('has space')] }, 'tools[0].function.name', 'invalid_value'],
    [{ tools: [tool('')] }, 'tools[0].function.name', 'invalid_value'],
    [{ tools: [tool('f'), tool('g'), tool('f')] }, 'tools[2].function.name', 'invalid_value'],
    [{ tools: [tool('f', { strict: 'yes' })] }, 'tools[0].function.strict', 'invalid_value'],
    [{ tools: [tool('f', { description: 5 })] }, 'tools[0].function.description', 'invalid_value'],
    [{ tools: [tool('f', { description: 'x'.repeat(20_000) })] }, 'tools[0].function.description', 'invalid_value'],
    [{ tools: [tool('f', { parameters: [] })] }, 'tools[0].function.parameters', 'invalid_value'],
    [{ tools: [tool('f', { parameters: { type: 'string' } })] }, 'tools[0].function.parameters.type', 'invalid_value'],
    [
      { tools: [tool('f', { parameters: { properties: { ...wide, x: { description: 'x'.repeat(20_000) } } } })] },
      'tools[0].function.parameters',
      'invalid_value',
    ],
    [{ tools: Array.from({ length: 129 }, (_, i) => tool(`f${i}`)) }, 'tools', 'invalid_value'],
    [{ tools: Array.from({ length: 7 }, (_, i) => tool(`f${i}`, { parameters: { properties: wide } })) }, 'tools', 'invalid_value'],
    [{ tools: TWO, tool_choice: 'any' }, 'tool_choice', 'invalid_value'],
    [{ tools: TWO, tool_choice: 5 }, 'tool_choice', 'invalid_value'],
    [{ tools: TWO, tool_choice: { type: 'function' } }, 'tool_choice.function', 'missing_required_parameter'],
    [{ tools: TWO, tool_choice: named('h') }, 'tool_choice.function.name', 'invalid_value'],
    [
      { tools: TWO, tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [named('f'), named('h')] } } },
      'tool_choice.allowed_tools.tools[1].function.name',
      'invalid_value',
    ],
    [{ tool_choice: 'required' }, 'tool_choice', 'invalid_value'],
    [{ tools: [], tool_choice: named('f') }, 'tool_choice', 'invalid_value'],
    [{ tools: TWO, parallel_tool_calls: 'yes' }, 'parallel_tool_calls', 'invalid_value'],
    [{ tools: TWO, guided_regex: 'a+' }, 'guided_regex', 'invalid_value'],
    [{ functions: [{ name: 'f' }] }, 'functions', 'unsupported_parameter'],
  ])('%#: $1', (body, param, code) => {
    expect(() => parse(body)).toThrow(expect.objectContaining({ param, code, status: 400 }));
  });

  it('not: a form of the answer without calls, beside tools that may not be called', () => {
    expect(parse({ tools: TWO, tool_choice: 'none', guided_regex: 'a+' }).job.structure).toMatchObject({ kind: 'regex' });
    expect(parse({ tools: TWO, response_format: { type: 'json_object' } }).job.structure).toMatchObject({ kind: 'json' });
  });
});
