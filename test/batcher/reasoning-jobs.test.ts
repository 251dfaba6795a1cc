/** Answers that reason first, in the loop, over the fake engine: told apart from what follows, whatever that is and whatever else happens to the job. */
import { afterEach, describe, expect, it } from 'vitest';
import type { Reasoning } from '../../batcher/reasoning/reasoning-syntax.ts';
import type { Job, Prompt, Structure, Tool, ToolUse } from '../../shared/job.ts';
import { makeJob, Rig, type RigOptions } from './rig.ts';
import { ASCII, answered, expectSameElsewhere, saying as sayingIn } from './told-answer.ts';

const WORDS = [...ASCII, '<think>', '</think>', '<tool_call>', '{"', '": '];

let rig: Rig;
function open(options: RigOptions = {}): Rig {
  rig = new Rig({ words: WORDS, reasoning: { start: 'possible' }, ...options, shape: { contextTokens: 1024, ...options.shape } });
  return rig;
}
afterEach(() => rig.close());

const tools: Tool[] = [
  { type: 'function', function: { name: 'f', parameters: { type: 'object', properties: { a: { enum: ['x', 'y'] } }, required: ['a'] } } },
];
const prompt: Prompt = { kind: 'chat', messages: [{ role: 'user', content: 'q' }], tools };
const use = (more: Partial<ToolUse> = {}): ToolUse => ({
  choice: 'auto',
  isParallel: true,
  schemaParam: 'tools[].function.parameters',
  ...more,
});

function job(parts: Partial<Job> = {}): Job {
  return makeJob({ prompt, stopping: { maxTokens: 300 }, sampling: { temperature: 0 }, ...parts });
}

async function run(one: Job) {
  const told = await answered(rig, one);
  const finish = rig.eventsOf(one.id).find(event => event.type === 'finish');
  return { reasoning: '', ...told, reasoningTokens: finish?.usage.reasoningTokens };
}

const saying = (text: string, words: readonly string[] = WORDS) => sayingIn(prompt, text.match(/<\/?think>|./gs)!, words);

const CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>';

describe('an answer', () => {
  it('whose reasoning is told apart, with the tokens that it took', async () => {
    open(saying('<think>\nHm, so.\n</think>\n\nParis.'));
    const told = await run(job());
    expect(told).toEqual({ reasoning: 'Hm, so.', text: 'Paris.', calls: [], end: ['stop'], reasoningTokens: 11 });
  });

  it('to a prompt that has begun it; that is without it; that does not close it', async () => {
    open({ ...saying('Hm.</think>Paris.'), reasoning: { start: 'begun' } });
    expect(await run(job())).toMatchObject({ reasoning: 'Hm.', text: 'Paris.', reasoningTokens: 4 });
    await rig.close();
    open(saying('Paris.'));
    expect(await run(job())).toMatchObject({ reasoning: '', text: 'Paris.', reasoningTokens: 0 });
    await rig.close();
    open(saying('<think>Hm, so.'));
    expect(await run(job({ stopping: { maxTokens: 5 } }))).toMatchObject({
      reasoning: 'Hm,',
      text: '',
      end: ['length'],
      reasoningTokens: 5,
    });
    expect(await run(job())).toMatchObject({ reasoning: 'Hm, so.', text: '', end: ['stop'] });
    await rig.close();
    open({ ...saying('<think>Hm.</think>Paris.'), reasoning: undefined });
    expect(await run(job())).toMatchObject({ reasoning: '', text: '<think>Hm.</think>Paris.', reasoningTokens: undefined });
  });

  it('whose marks are control tokens', async () => {
    const words = ASCII;
    const controls = ['<think>', '</think>'];
    const [openerTokenId, closerTokenId] = [ASCII.length + 1, ASCII.length + 2];
    const reasoning: Reasoning = { start: 'possible', openerTokenId, closerTokenId };
    open({ words, controls, reasoning, ...saying('<think>Hm </think>Paris.', [...words, ...controls]) });
    expect(await run(job())).toMatchObject({ reasoning: 'Hm', text: 'Paris.' });
    const choice: Structure = { kind: 'choice', param: 'guided_choice', choices: ['Rome.', 'Paris.'] };
    expect(await run(job({ structure: choice }))).toMatchObject({ reasoning: 'Hm', text: 'Paris.', end: ['stop'] });
  });

  it('is stopped in its text and not in its reasoning, nor by what stands between', async () => {
    open(saying('<think>One. Two.\n\n</think>\n\nThree. Four.'));
    const stopping = (...stop: string[]) => run(job({ stopping: { maxTokens: 300, stop } }));
    expect(await stopping('One', '\n\n', 'think', 'Four')).toMatchObject({ reasoning: 'One. Two.', text: 'Three. ', end: ['stop'] });
    // From its first character on.
    expect(await stopping('Thr')).toMatchObject({ reasoning: 'One. Two.', text: '', end: ['stop'] });
  });

  it('with calls behind it; those within it are none', async () => {
    open(saying(`<think>Say ${CALL}?</think>\nSo:\n${CALL}`));
    const told = await run(job({ toolUse: use() }));
    expect(told).toMatchObject({ reasoning: `Say ${CALL}?`, text: 'So:', calls: [['f', '{"a": "x"}']], end: ['tool_calls'] });
  });

  it('with the log-probability of each of its tokens', async () => {
    const said = '<think>Hm</think>\nYes';
    open(saying(said));
    const one = job({ sampling: { temperature: 0, topLogprobs: 0 } });
    await run(one);
    const tokens = rig.eventsOf(one.id).flatMap(event => (event.type === 'delta' ? (event.logprobs ?? []) : []));
    expect(tokens.map(({ token }) => token).join('')).toBe(said);
  });
});

describe('held to a form', () => {
  it('from where the reasoning ends', async () => {
    const schema = { type: 'object', properties: { a: { enum: ['x', 'y'] } }, required: ['a'] };
    open(saying('<think>{"a": 3}? No.</think>\n{"a": 3}'));
    const { reasoning, text, end } = await run(job({ structure: { kind: 'schema', param: 'response_format', schema } }));
    expect([reasoning, end]).toEqual(['{"a": 3}? No.', ['stop']]);
    expect(['x', 'y']).toContain(JSON.parse(text).a);
  });

  it('a call that must be made', async () => {
    open(saying('<think>I call.</think>\nNo, I do not.'));
    const { reasoning, text, calls, end } = await run(job({ toolUse: use({ choice: 'required', isParallel: false }) }));
    expect([reasoning, text, end]).toEqual(['I call.', '', ['tool_calls']]);
    expect(calls).toHaveLength(1);
    expect(JSON.parse(calls[0]![1]!).a).toMatch(/^[xy]$/);
  });

  it('and told in the room there is: reasoning without end is ended, but where calls may come', async () => {
    open(saying(`<think>${'Hm, so. '.repeat(40)}`));
    const yes: Structure = { kind: 'choice', param: 'guided_choice', choices: ['yes', 'no'] };
    const asked = { structure: yes, stopping: { maxTokens: 50 } };
    const told = await run(job(asked));
    expect(told).toMatchObject({ reasoning: expect.stringMatching(/^Hm, so\./), end: ['length'] });
    expect(['yes', 'no']).toContain(told.text);
    expect(await run(job({ ...asked, toolUse: use() }))).toMatchObject({ text: '', calls: [], end: ['length'], reasoningTokens: 50 });
  });

  it('what cannot be held to is refused by its own field', async () => {
    open();
    const one = job({ structure: { kind: 'schema', param: 'response_format', schema: { not: {} } } });
    await run(one);
    expect(rig.eventsOf(one.id)).toMatchObject([
      {
        type: 'error',
        code: 'invalid_value',
        param: 'response_format',
        message: expect.stringContaining("JSON schema in 'response_format' at #/not"),
      },
    ]);
  });
});

describe('with a budget for its reasoning', () => {
  const idOf = (word: string) => WORDS.indexOf(word) + 1;
  const MARK = [idOf('</think>')];
  const SPELLED = Array.from('</think>', idOf);
  const thinking = (maxReasoningTokens: number, more: Partial<Job> = {}) =>
    job({ stopping: { maxTokens: 60, maxReasoningTokens }, ...more });

  it.each([
    ['a mark of one token', MARK, 7],
    ['a mark that is spelled', SPELLED, 14],
  ])('it ends when that is spent, by %s, and the answer comes', async (_, closerTokenIds, reasoningTokens) => {
    // From behind the mark on the model goes on as if it had not been there.
    open({ ...saying(`<think>${'Hm, so. '.repeat(9)}`), closerTokenIds });
    const told = await run(thinking(6));
    expect(told).toMatchObject({ reasoning: 'Hm, s', reasoningTokens });
    expect(told.text.length).toBeGreaterThan(20);
  });

  it('that it does not spend has no effect', async () => {
    const said = saying('<think>Hm, so.</think>Paris.');
    open({ ...said, closerTokenIds: MARK });
    const within = await run(thinking(9));
    expect(within).toMatchObject({ reasoning: 'Hm, so.', text: 'Paris.', end: ['stop'], reasoningTokens: 9 });
    expect(await run(job({ stopping: { maxTokens: 60 } }))).toEqual(within);
    await rig.close();
    open({ ...saying('Paris.'), closerTokenIds: MARK });
    expect(await run(thinking(1))).toMatchObject({ reasoning: '', text: 'Paris.', reasoningTokens: 0 });
  });

  it('counts from the beginning of a prompt that ends within it, and in front of an answer that has a form', async () => {
    open({ ...saying('Hm, so. '.repeat(9)), reasoning: { start: 'begun' }, closerTokenIds: SPELLED });
    const yes: Structure = { kind: 'choice', param: 'guided_choice', choices: ['yes', 'no'] };
    const { reasoning, text, end } = await run(thinking(3, { structure: yes }));
    expect([reasoning, end]).toEqual(['Hm,', ['stop']]);
    expect(['yes', 'no']).toContain(text);
  });

  it('is kept to with drafts, and by another batcher wherever the first one ended', async () => {
    const options: RigOptions = {
      ...{ words: WORDS, reasoning: { start: 'possible' }, shape: { contextTokens: 1024 }, closerTokenIds: SPELLED },
      ...saying(`<think>${'Text and text. '.repeat(8)}`),
    };
    open({ ...options, speculation: false });
    const plain = await run(thinking(40));
    await rig.close();
    open(options);
    const one = thinking(40);
    expect(await run(one)).toEqual(plain);
    expect(plain.reasoning).toBe('Text and text. Text and text. Text and');
    await expectSameElsewhere(rig, one, { options, step: 2 });
  });
});

describe('whatever happens to it', () => {
  it('goes on at another batcher wherever the first one ended', async () => {
    const options: RigOptions = {
      ...{ words: WORDS, reasoning: { start: 'possible' }, shape: { contextTokens: 1024 } },
      ...saying(`<think>Hm, so.</think>\n\nParis: ${CALL}`),
    };
    open(options);
    const one = job({ toolUse: use({ strictNames: ['f'] }), stopping: { maxTokens: 300, stop: ['Rome'] } });
    const whole = await run(one);
    expect(whole).toMatchObject({ reasoning: 'Hm, so.', text: 'Paris:', end: ['tool_calls'] });
    await expectSameElsewhere(rig, one, { options, step: 2 });
  });

  it('is the same with drafts and without', async () => {
    const said = saying(`<think>${'Text and text. '.repeat(6)}</think>\n${'Text and text. '.repeat(6)}`);
    open({ ...said, speculation: false });
    const plain = await run(job());
    await rig.close();
    open(said);
    expect(await run(job())).toEqual(plain);
    expect(rig.draftCount).toBeGreaterThan(10);
  });
});
