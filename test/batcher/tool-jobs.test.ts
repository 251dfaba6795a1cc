/** Answers that call functions, in the loop, over the fake engine: whatever else happens to a job, its calls are the same. */
import { afterEach, describe, expect, it } from 'vitest';
import type { ToolSyntax } from '../../batcher/tools/tool-format.ts';
import type { Job, Prompt, Tool, ToolUse } from '../../shared/job.ts';
import { makeJob, Rig, type RigOptions } from './rig.ts';
import { ASCII, answered, expectSameElsewhere, saying as sayingIn, toldBy } from './told-answer.ts';

const WORDS = [...ASCII, '<tool_call>', '</tool_call>', '{"', '": ', '"}}'];

let rig: Rig;
function open(options: RigOptions = {}): Rig {
  rig = new Rig({ words: WORDS, ...options, shape: { contextTokens: 1024, ...options.shape } });
  return rig;
}
afterEach(() => rig.close());

const tools: Tool[] = [
  {
    type: 'function',
    function: { name: 'f', parameters: { type: 'object', properties: { a: { enum: ['x', 'y', 'zz'] } }, required: ['a'] } },
  },
  {
    type: 'function',
    function: {
      name: 'g',
      parameters: { type: 'object', properties: { n: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['n'] },
    },
  },
];
const prompt: Prompt = { kind: 'chat', messages: [{ role: 'user', content: 'q' }], tools };
const use = (more: Partial<ToolUse> = {}): ToolUse => ({
  choice: 'required',
  isParallel: true,
  schemaParam: 'tools[].function.parameters',
  ...more,
});

function job(parts: Partial<Job> = {}): Job {
  return makeJob({ prompt, toolUse: use(), stopping: { maxTokens: 300 }, sampling: { temperature: 1, seed: 1 }, ...parts });
}

const run = (one: Job) => answered(rig, one);
const saying = (text: string) => sayingIn(prompt, text);
const greedy = { sampling: { temperature: 0 } };

describe('an answer that must call', () => {
  it('is calls that fit, of each choice its own', async () => {
    open();
    const names = new Set<string>();
    for (let seed = 0; seed < 12; seed++) {
      const one = job({ sampling: { temperature: 1, seed }, choiceCount: 2 });
      await rig.submit(one);
      await rig.settled();
      for (const choice of [0, 1]) {
        const { text, calls, end } = toldBy(rig.eventsOf(one.id), choice);
        expect(text).toBe('');
        expect(end).toEqual(['tool_calls']);
        expect(calls.length).toBeGreaterThan(0);
        for (const [name, json] of calls) {
          names.add(name!);
          const value = JSON.parse(json);
          if (name === 'f') expect(['x', 'y', 'zz']).toContain(value.a);
          else expect(value.n).toBeLessThan(100);
        }
      }
    }
    expect(names).toEqual(new Set(['f', 'g']));
  });

  it('that is named calls once, and needs no end token', async () => {
    open();
    const { calls, end } = await run(job({ toolUse: use({ names: ['g'], isParallel: false }) }));
    expect(calls.map(([name]) => name)).toEqual(['g']);
    expect(end).toEqual(['tool_calls']);
  });

  it('is cut by the length, never by a stop string, and tells log-probabilities of all tokens', async () => {
    open();
    const asked = { toolUse: use({ names: ['f'], isParallel: false }) };
    const whole = await run(job(asked));
    expect(await run(job({ ...asked, stopping: { maxTokens: 300, stop: ['"', 'tool', '\n', '{'] } }))).toEqual(whole);
    const cut = job({ ...asked, stopping: { maxTokens: 38 }, sampling: { temperature: 1, seed: 1, topLogprobs: 0 } });
    const { calls, end, text } = await run(cut);
    expect({ end, text }).toEqual({ end: ['length'], text: '' });
    for (const [index, [name, json]] of calls.entries()) expect([name, whole.calls[index]![1].startsWith(json)]).toEqual(['f', true]);
    const deltas = rig.eventsOf(cut.id).flatMap(event => (event.type === 'delta' ? [event] : []));
    expect(deltas.flatMap(delta => delta.logprobs ?? [])).toHaveLength(38);
  });

  it('is refused where a schema cannot be held to, by the place of the function', async () => {
    open();
    const bad: Tool = { type: 'function', function: { name: 'h', parameters: { properties: { x: { not: {} } } } } };
    const one = job({ prompt: { ...prompt, tools: [...tools, bad] } });
    await run(one);
    expect(rig.eventsOf(one.id)).toMatchObject([
      {
        type: 'error',
        code: 'invalid_value',
        param: 'tools[2].function.parameters',
        message: expect.stringContaining('#/properties/x/not'),
      },
    ]);
  });
});

describe('an answer that may call', () => {
  const auto = use({ choice: 'auto' });
  const CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "x y"}}\n</tool_call>';

  it('is text, calls, or both', async () => {
    for (const [said, expected] of [
      ['Just text.\n', { text: 'Just text.\n', calls: [], end: ['stop'] }],
      [`So:\n${CALL}\n${CALL}`, { text: 'So:', calls: Array(2).fill(['f', '{"a": "x y"}']), end: ['tool_calls'] }],
      ['<tool_call>{"name": "unknown"}', { text: '<tool_call>{"name": "unknown"}', calls: [], end: ['stop'] }],
    ] as const) {
      open(saying(said));
      expect(await run(job({ toolUse: auto, ...greedy }))).toEqual(expected);
      await rig.close();
    }
    open(saying(CALL));
    // Without the use of tools it is text like any other.
    expect(await run(makeJob({ prompt, ...greedy, stopping: { maxTokens: 300 } }))).toEqual({ text: CALL, calls: [], end: ['stop'] });
  });

  it('is held to a strict function’s schema once it has begun, and to one call', async () => {
    const said = 'So. <tool_call>\n{"name": "f", "arguments": {"b": 1}}\n</tool_call> more';
    open(saying(said));
    const { text, calls } = await run(job({ toolUse: use({ choice: 'auto', strictNames: ['f'] }), ...greedy }));
    expect(text.startsWith('So.')).toBe(true);
    expect(JSON.parse(calls[0]![1]).a).toMatch(/^(x|y|zz)$/);
    await rig.close();
    open(saying(`${CALL}\n${CALL}`));
    const one = await run(job({ toolUse: use({ choice: 'auto', isParallel: false }), ...greedy }));
    expect(one).toEqual({ text: '', calls: [['f', '{"a": "x y"}']], end: ['tool_calls'] });
  });

  it('is stopped in its text and not in its calls', async () => {
    const said = `One. Two.\n${CALL}`;
    open(saying(said));
    const stopping = (...stop: string[]) => ({ toolUse: auto, ...greedy, stopping: { maxTokens: 300, stop } });
    expect(await run(job(stopping('x y', '"name"', '"}', 'tool', '<')))).toEqual({
      text: 'One. Two.',
      calls: [['f', '{"a": "x y"}']],
      end: ['tool_calls'],
    });
    expect(await run(job(stopping('Two', 'x y')))).toEqual({ text: 'One. ', calls: [], end: ['stop'] });
    // What the call cuts off is no stop string.
    expect((await run(job(stopping('\n<tool_call>\n')))).calls).toHaveLength(1);
  });

  it('is cut by the length: a call told so far, or text', async () => {
    open(saying(CALL));
    const cut = (maxTokens: number) => run(job({ toolUse: auto, ...greedy, stopping: { maxTokens } }));
    expect(await cut(CALL.indexOf('x y') + 1)).toEqual({ text: '', calls: [['f', '{"a": "x']], end: ['length'] });
    expect(await cut(20)).toEqual({ text: CALL.slice(0, 20), calls: [], end: ['length'] });
  });
});

describe('whatever happens to it', () => {
  const controls = ['[TOOL_CALLS]', '[CALL_ID]', '[ARGS]'];
  const [openerTokenId, idTokenId, argumentsTokenId] = controls.map((_, index) => WORDS.length + 1 + index);
  it.each<[string, ToolSyntax]>([
    ['hermes', { format: 'hermes' }],
    ['llama3', { format: 'llama3' }],
    ['mistral', { format: 'mistral' }],
    ['mistral by name', { format: 'mistral', named: { hasIds: false } }],
    ['mistral with marks that are tokens', { format: 'mistral', openerTokenId, named: { hasIds: true, idTokenId, argumentsTokenId } }],
  ])('%s: goes on at another batcher wherever the first one ended', async (_, toolSyntax) => {
    const options = { words: WORDS, controls, toolSyntax, shape: { contextTokens: 1024 } };
    open(options);
    const one = job({ sampling: { temperature: 1, seed: 5 }, toolUse: use({ names: ['f'] }), stopping: { maxTokens: 120 } });
    const whole = await run(one);
    expect(whole.calls.length).toBeGreaterThan(0);
    await expectSameElsewhere(rig, one, { options, step: 3 });
  });

  it('is the same with drafts and without', async () => {
    const said = `Text and text. ${'<tool_call>\n{"name": "f", "arguments": {"a": "x y"}}\n</tool_call>\n'.repeat(3)}`;
    const one = job({ toolUse: use({ choice: 'auto' }), ...greedy, stopping: { maxTokens: 400, stop: ['x y'] } });
    open({ ...saying(said), speculation: false });
    const plain = await run(one);
    await rig.close();
    open(saying(said));
    expect(await run(one)).toEqual(plain);
    expect(rig.draftCount).toBeGreaterThan(10);
    expect(plain.calls).toHaveLength(3);
  });
});
