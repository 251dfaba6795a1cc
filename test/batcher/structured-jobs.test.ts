/** Structured answers in the loop, over the fake engine: they hold whatever else happens to a job. Tokens are the letters a to z. */
import { afterEach, describe, expect, it } from 'vitest';
import type { Job, Structure } from '../../shared/job.ts';
import { isTerminal, type TokenEvent } from '../../shared/token-event.ts';
import { END_TOKEN, makeJob, Rig, type RigOptions } from './rig.ts';

let rig: Rig;
function open(options: RigOptions = {}): Rig {
  rig = new Rig(options);
  return rig;
}
afterEach(() => rig.close());

const regex = (pattern: string): Structure => ({ kind: 'regex', param: 'guided_regex', pattern });
/** Parts of three kinds, so that almost every token is a choice. */
const SHAPED = regex('(?:x[a-m]{2}y|z[n-w])+q');

function job(parts: Partial<Job> = {}): Job {
  return makeJob({ structure: SHAPED, stopping: { maxTokens: 40 }, sampling: { temperature: 1, seed: 3 }, ...parts });
}

const tokensOf = (events: TokenEvent[], choice = 0) =>
  events.flatMap(event => (event.type === 'delta' && event.choice === choice ? event.tokenIds : []));
const endOf = (events: TokenEvent[], choice = 0) =>
  events.flatMap(event => (event.type === 'delta' && event.choice === choice && event.finishReason ? [event.finishReason] : []));

async function run(one: Job): Promise<{ text: string; end: string[] }> {
  await rig.submit(one);
  await rig.settled();
  expect(rig.eventsOf(one.id).filter(isTerminal)).toHaveLength(1);
  return { text: rig.textOf(one.id), end: endOf(rig.eventsOf(one.id)) };
}

describe('a structured answer', () => {
  it('is complete within max_tokens: with stop where the model ended it, without an end token; with length where the room did', async () => {
    open();
    const ends = new Set<string>();
    for (let seed = 0; seed < 30; seed++) {
      const one = job({ sampling: { temperature: 1, seed }, stopping: { maxTokens: 8 } });
      const { text, end } = await run(one);
      ends.add(end[0]!);
      expect(text).toMatch(/^(?:x[a-m]{2}y|z[n-w])+q$/);
      expect(text.length).toBeLessThanOrEqual(8);
      expect(tokensOf(rig.eventsOf(one.id))).not.toContain(END_TOKEN);
      // The same with more room: what is the same to the end was the model's own end.
      const roomy = await run(job({ sampling: { temperature: 1, seed } }));
      expect(end).toEqual([roomy.text === text ? 'stop' : 'length']);
    }
    expect(ends).toEqual(new Set(['stop', 'length']));
  });

  it('is brought to its end before the context is full, where the request names no limit', async () => {
    open();
    const one = job({ stopping: {}, prompt: { kind: 'tokens', tokenIds: [1, 2, 3, 4] }, structure: regex('[a-z]+(?:xyz)') });
    const { text, end } = await run(one);
    expect(end).toEqual(['length']);
    expect(text).toMatch(/^[a-z]+xyz$/);
    expect(text).toHaveLength(rig.engine.shape.contextTokens - 4);
  });

  it('is a beginning where not even the shortest answer has room', async () => {
    open();
    expect(await run(job({ structure: regex('abcdefgh'), stopping: { maxTokens: 5 } }))).toEqual({ text: 'abcde', end: ['length'] });
  });

  it('ends with an end token that the room asks for, which is not told', async () => {
    // The model never wants to end.
    open({ shapeLogits: logits => (logits[END_TOKEN] = -100) });
    const one = job({ structure: regex('ab(?:c{6})*'), sampling: { temperature: 0 }, stopping: { maxTokens: 12 } });
    expect(await run(one)).toEqual({ text: 'abcccccc', end: ['length'] });
    expect(rig.eventsOf(one.id).at(-1)).toMatchObject({ type: 'finish', usage: { completionTokens: 8 } });
  });

  it('ends by the end token where more could follow, and not before it may', async () => {
    // The model wants to end from the first token on.
    open({ shapeLogits: logits => (logits[END_TOKEN] = 100) });
    expect(await run(job({ structure: regex('ab*'), sampling: { temperature: 0 } }))).toEqual({ text: 'a', end: ['stop'] });
    expect(await run(job({ structure: regex('abcdef'), sampling: { temperature: 0 } }))).toEqual({ text: 'abcdef', end: ['stop'] });
  });

  it('holds for each of several choices and prompts, which differ', async () => {
    open();
    const one = job({
      structure: regex('[a-d]{6}'),
      choiceCount: 3,
      morePrompts: [{ kind: 'tokens', tokenIds: [9, 8, 7] }],
    });
    await run(one);
    const texts = Array.from({ length: 6 }, (_, choice) => rig.textOf(one.id, choice));
    for (const text of texts) expect(text).toMatch(/^[a-d]{6}$/);
    expect(new Set(texts).size).toBeGreaterThan(3);
  });

  it('is cut by a stop string like any other, and tells the log-probabilities of the model', async () => {
    open();
    const cut = job({ structure: regex('abcdefgh'), stopping: { maxTokens: 40, stop: ['de'] } });
    expect(await run(cut)).toEqual({ text: 'abc', end: ['stop'] });
    const scored = job({ structure: regex('abcdefgh'), sampling: { temperature: 1, seed: 1, topLogprobs: 2 } });
    await run(scored);
    const entries = rig.eventsOf(scored.id).flatMap(event => (event.type === 'delta' ? (event.logprobs ?? []) : []));
    expect(entries.map(entry => entry.token).join('')).toBe('abcdefgh');
    // What the structure forces was not what the model thought likeliest.
    expect(entries.some(entry => entry.top.every(one => one.tokenId !== entry.tokenId))).toBe(true);
    for (const entry of entries) expect(entry.logprob).toBeLessThan(0);
  });

  it('goes with bias, penalties and narrowing', async () => {
    open();
    for (const sampling of [
      { temperature: 1, seed: 1, logitBias: { 26: 100, 1: -100 } },
      { temperature: 2, seed: 2, topK: 1 },
      { temperature: 2, seed: 3, topP: 0.01, minP: 0.9 },
      { temperature: 1, seed: 4, presencePenalty: 2, frequencyPenalty: 2, repetitionPenalty: 10 },
      { temperature: 2, seed: 5, typicalP: 0.1 },
    ]) {
      expect((await run(job({ structure: regex('[a-e]{8}z?'), sampling }))).text).toMatch(/^[a-e]{8}z?$/);
    }
  });

  it('is refused with its reason before anything is told, and holds no row', async () => {
    open();
    const one = job({ structure: { kind: 'schema', param: 'response_format', schema: { properties: { x: { not: {} } } } } });
    await run(one);
    expect(rig.eventsOf(one.id)).toMatchObject([{ type: 'error', code: 'invalid_value', param: 'response_format' }]);
    expect(rig.eventsOf(one.id)[0]).toMatchObject({ message: expect.stringContaining('#/properties/x/not') });
    expect(rig.scheduler.runningCount + rig.scheduler.waitingCount).toBe(0);
    expect(rig.completed).toEqual([one.id]);
  });
});

describe('whatever happens to it', () => {
  it('is the same with drafts and without', async () => {
    // A repetitive answer, so that looking up its past finds drafts; some of them do not fit.
    const structure = regex('(?:abcdefgh[ij]){8}q');
    const one = job({ structure, sampling: { temperature: 0 }, stopping: { maxTokens: 80 } });
    open({ speculation: false });
    const plain = await run(one);
    await rig.close();
    open();
    expect(await run(one)).toEqual(plain);
    expect(rig.draftCount).toBeGreaterThan(10);
  });

  it('is the same when it was preempted', async () => {
    const jobs = Array.from({ length: 6 }, (_, seed) =>
      job({ structure: regex('(?:x[a-m]{2}y|z[n-w]){12}q'), sampling: { temperature: 1, seed }, stopping: { maxTokens: 60 } }),
    );
    open();
    const texts: string[] = [];
    for (const one of jobs) texts.push((await run(one)).text);
    await rig.close();
    open({ budgetBlocks: 8, maxRunning: 4 });
    await Promise.all(jobs.map(one => rig.submit(one)));
    await rig.settled();
    expect(jobs.map(one => rig.textOf(one.id))).toEqual(texts);
    expect(rig.scheduler.preemptionCount).toBeGreaterThan(0);
    for (const text of texts) expect(text).toMatch(/^(?:x[a-m]{2}y|z[n-w]){12}q$/);
  });

  it.each([
    ['ended by the model', '(?:x[a-m]{2}y|z[n-w]){6}q', 60],
    ['ended by its room', '(?:x[a-m]{2}y|z[n-w])*qpo', 17],
  ])('goes on at another batcher wherever the first one ended: %s', async (_, pattern, maxTokens) => {
    const one = job({ structure: regex(pattern), sampling: { temperature: 1, seed: 8 }, stopping: { maxTokens } });
    open();
    const whole = await run(one);
    const events = rig.eventsOf(one.id);
    for (let kept = 0; kept <= events.length; kept++) {
      const next = new Rig();
      next.events.set(one.id, structuredClone(events.slice(0, kept)));
      await next.submit(one, 2);
      await next.settled();
      expect({ text: next.textOf(one.id), end: endOf(next.eventsOf(one.id)) }, `${kept} events were recorded`).toEqual(whole);
      await next.close();
    }
  });
});
