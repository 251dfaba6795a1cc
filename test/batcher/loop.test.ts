/** The loop with everything pure joined: every job ends in one terminal event, whatever happens to it. */
import { afterEach, describe, expect, it } from 'vitest';
import { isTerminal, type TokenEvent } from '../../shared/token-event.ts';
import { END_TOKEN, makeJob, Rig, type RigOptions } from './rig.ts';

let rig: Rig;
function open(options: RigOptions = {}): Rig {
  rig = new Rig(options);
  return rig;
}
afterEach(() => rig.close());

function checkRecord(events: TokenEvent[]): void {
  expect(events.map(event => event.seq)).toEqual(events.map((_, index) => index));
  expect(events.filter(isTerminal)).toHaveLength(1);
  expect(isTerminal(events.at(-1)!)).toBe(true);
}

const tokensOf = (events: TokenEvent[], choice = 0) =>
  events.flatMap(event => (event.type === 'delta' && event.choice === choice ? event.tokenIds : []));

describe('Loop', () => {
  it('tells accepted, deltas and finish of one job, and settles it', async () => {
    const { generations } = open();
    const job = makeJob();
    await rig.submit(job);
    await rig.settled();
    const events = rig.eventsOf(job.id);
    checkRecord(events);
    expect(events[0]).toMatchObject({ type: 'accepted', promptTokens: 5 });
    expect(events.at(-2)).toMatchObject({ type: 'delta', finishReason: 'length' });
    expect(events.at(-1)).toMatchObject({ type: 'finish', usage: { promptTokens: 5, completionTokens: 12 } });
    expect(rig.completed).toEqual([job.id]);
    expect(generations.count).toBe(0);
  });

  it('gives each of many jobs what it gets alone', async () => {
    open({ maxRunning: 4 });
    const jobs = Array.from({ length: 40 }, (_, i) =>
      makeJob({ prompt: { kind: 'tokens', tokenIds: Array.from({ length: 1 + (i % 23) }, (_, k) => 1 + ((i * k) % 17)) } }),
    );
    await Promise.all(jobs.map(job => rig.submit(job)));
    await rig.settled();
    for (const job of jobs) checkRecord(rig.eventsOf(job.id));
    const alone = new Rig();
    for (const job of jobs.slice(0, 8)) {
      await alone.submit(job);
      await alone.settled();
      expect(tokensOf(rig.eventsOf(job.id))).toEqual(tokensOf(alone.eventsOf(job.id)));
    }
    await alone.close();
  });

  it('ends at the end token, which is no text', async () => {
    open({
      shapeLogits: (logits, _cell, position) => {
        if (position >= 7) logits[END_TOKEN] = 100;
      },
    });
    const job = makeJob({ stopping: { maxTokens: 50 } });
    await rig.submit(job);
    await rig.settled();
    const events = rig.eventsOf(job.id);
    checkRecord(events);
    expect(tokensOf(events).at(-1)).toBe(END_TOKEN);
    expect(events.at(-2)).toMatchObject({ finishReason: 'stop' });
    expect(rig.textOf(job.id)).toHaveLength(tokensOf(events).length - 1);
    expect(events.at(-1)).toMatchObject({ usage: { completionTokens: tokensOf(events).length - 1 } });
  });

  it('cuts before a stop string, also one that spans tokens', async () => {
    open();
    const free = makeJob();
    await rig.submit(free);
    await rig.settled();
    const text = rig.textOf(free.id);
    const job = makeJob({ stopping: { maxTokens: 12, ignoreEos: true, stop: [text.slice(4, 7)] } });
    await rig.submit(job);
    await rig.settled();
    checkRecord(rig.eventsOf(job.id));
    expect(rig.textOf(job.id)).toBe(text.slice(0, text.indexOf(text.slice(4, 7))));
    expect(rig.scheduler.runningCount + rig.scheduler.waitingCount).toBe(0);
  });

  it('gives n choices that share one prefill, each with its own end', async () => {
    open();
    const job = makeJob({ choiceCount: 3, sampling: { temperature: 1, seed: 5 } });
    await rig.submit(job);
    await rig.settled();
    const events = rig.eventsOf(job.id);
    checkRecord(events);
    for (const choice of [0, 1, 2]) {
      expect(tokensOf(events, choice)).toHaveLength(12);
      expect(events.filter(event => event.type === 'delta' && event.choice === choice && event.finishReason !== undefined)).toHaveLength(1);
    }
    expect(events.at(-1)).toMatchObject({ usage: { promptTokens: 5, completionTokens: 36 } });
  });

  it('ends with length at the end of the context', async () => {
    open({ shape: { contextTokens: 32 } });
    const job = makeJob({ stopping: { ignoreEos: true } });
    await rig.submit(job);
    await rig.settled();
    checkRecord(rig.eventsOf(job.id));
    expect(rig.eventsOf(job.id).at(-2)).toMatchObject({ finishReason: 'length' });
    expect(tokensOf(rig.eventsOf(job.id))).toHaveLength(27);
  });

  it('refuses a prompt that is too long, and one with too much to come', async () => {
    open({ shape: { contextTokens: 32 } });
    const long = makeJob({ prompt: { kind: 'tokens', tokenIds: Array(32).fill(1) }, stopping: {} });
    const greedy = makeJob({ stopping: { maxTokens: 28 } });
    await Promise.all([rig.submit(long), rig.submit(greedy)]);
    await rig.settled();
    for (const job of [long, greedy]) {
      expect(rig.eventsOf(job.id)).toMatchObject([{ type: 'error', code: 'context_length_exceeded', param: 'prompt' }]);
    }
    expect(rig.completed.toSorted()).toEqual([long.id, greedy.id].toSorted());
  });

  it('stops a cancelled job within a step and frees its row', async () => {
    const { standings } = open({ delay: () => new Promise(resolve => setImmediate(resolve)) });
    const job = makeJob({ stopping: { ignoreEos: true } });
    standings.set(job.id, 'cancelled');
    await rig.submit(job);
    await rig.settled();
    expect(rig.eventsOf(job.id).at(-1)).toMatchObject({ type: 'error', code: 'request_cancelled' });
    expect(tokensOf(rig.eventsOf(job.id)).length).toBeLessThan(6);
    expect(rig.scheduler.runningCount).toBe(0);
    expect(rig.completed).toEqual([job.id]);
  });

  it('says nothing more of a job that a later attempt owns, and leaves it on the queue', async () => {
    const { standings } = open();
    const job = makeJob({ stopping: { ignoreEos: true } });
    standings.set(job.id, 'fenced');
    await rig.submit(job);
    await rig.settled();
    expect(rig.eventsOf(job.id)).toEqual([]);
    expect(rig.completed).toEqual([]);
    expect(rig.scheduler.runningCount).toBe(0);
  });

  it.each([
    ['greedy', { temperature: 0 }],
    ['seeded', { temperature: 1, seed: 11 }],
    ['unseeded', { temperature: 1 }],
    ['with penalties', { temperature: 0.7, seed: 3, frequencyPenalty: 1.5, presencePenalty: 0.5, repetitionPenalty: 1.3 }],
  ])('goes on where a dead batcher stopped: %s', async (_name, sampling) => {
    open();
    const whole = makeJob({ sampling, choiceCount: 2 });
    await rig.submit(whole);
    await rig.settled();
    const record = rig.eventsOf(whole.id);
    for (const cut of [0, 1, 4, 9, record.length - 1, record.length]) {
      const next = new Rig();
      next.events.set(whole.id, structuredClone(record.slice(0, cut)));
      await next.submit(whole, 2);
      await next.settled();
      checkRecord(next.eventsOf(whole.id));
      for (const choice of [0, 1]) {
        expect(next.textOf(whole.id, choice)).toBe(rig.textOf(whole.id, choice));
        expect(tokensOf(next.eventsOf(whole.id), choice)).toEqual(tokensOf(record, choice));
      }
      expect(next.completed).toEqual([whole.id]);
      await next.close();
    }
  });

  it('serves a job of a later version, with fields that this one does not know', async () => {
    open();
    const known = makeJob();
    const later = { ...known, id: `${known.id}-later`, version: 9, novelty: { depth: [1] }, sampling: { ...known.sampling, swing: 3 } };
    await rig.submit(known);
    await rig.submit(later as never);
    await rig.settled();
    expect(rig.textOf(later.id)).toBe(rig.textOf(known.id));
    expect(rig.completed).toEqual(expect.arrayContaining([known.id, later.id]));
  });

  it('gives up on a job that was tried too often, the last two times apart from other suspects', async () => {
    open();
    const whole = makeJob();
    await rig.submit(whole);
    const job = { ...whole, id: `${whole.id}-guilty` };
    const head = { id: job.id, attempt: 3 };
    rig.events.set(job.id, [
      { ...head, seq: 0, type: 'accepted', promptTokens: 3 },
      { ...head, seq: 1, type: 'tried' },
      { ...head, attempt: 4, seq: 2, type: 'tried' },
    ]);
    await rig.submit(job, 5);
    await rig.settled();
    expect(rig.eventsOf(job.id).slice(3)).toMatchObject([{ type: 'error', code: 'generation_failed', seq: 3 }]);
    // A batcher may have ended for another reason at the one of them.
    const once = { ...whole, id: `${whole.id}-once` };
    rig.events.set(once.id, [
      { ...head, id: once.id, seq: 0, type: 'accepted', promptTokens: 3 },
      { ...head, id: once.id, seq: 1, type: 'tried' },
    ]);
    await rig.submit(once, 4);
    await rig.settled();
    expect(rig.textOf(once.id)).toBe(rig.textOf(whole.id));
    // One that only waited for its turn at the third death has that turn now.
    const neighbour = { ...whole, id: `${whole.id}-neighbour` };
    await rig.submit(neighbour, 4);
    await rig.settled();
    expect(rig.eventsOf(neighbour.id).map(event => event.type)).toContain('tried');
    expect(rig.textOf(neighbour.id)).toBe(rig.textOf(whole.id));
  });

  it('runs suspects one at a time, each until it has recorded a token, and other jobs beside them', async () => {
    open();
    const suspects = [1, 2, 3].map(() => makeJob({ stopping: { maxTokens: 20, ignoreEos: true } }));
    const bystander = makeJob({ stopping: { maxTokens: 20, ignoreEos: true } });
    await Promise.all([...suspects.map(job => rig.submit(job, 3)), rig.submit(bystander)]);
    await rig.settled();
    const order = [...rig.told].filter(event => suspects.some(job => job.id === event.id));
    const turns = order.filter(event => event.type === 'tried').map(event => event.id);
    expect(new Set(turns)).toEqual(new Set(suspects.map(job => job.id)));
    for (const [index, id] of turns.entries()) {
      const next = turns[index + 1];
      if (next === undefined) break;
      const firstToken = order.findIndex(event => event.id === id && event.type === 'delta');
      expect(firstToken).toBeGreaterThan(-1);
      expect(firstToken).toBeLessThan(order.findIndex(event => event.id === next && event.type === 'tried'));
    }
    for (const job of [...suspects, bystander]) expect(rig.eventsOf(job.id).at(-1)?.type).toBe('finish');
  });

  it('gives the turn on when a suspect is cancelled, or taken by another', async () => {
    open();
    const [first, second, third] = [1, 2, 3].map(() => makeJob({ stopping: { maxTokens: 20, ignoreEos: true } }));
    rig.standings.set(first!.id, 'cancelled');
    rig.standings.set(second!.id, 'fenced');
    await Promise.all([first!, second!, third!].map(job => rig.submit(job, 3)));
    await rig.settled();
    expect(rig.eventsOf(third!.id).at(-1)?.type).toBe('finish');
  });

  it('goes on with a job that gets further with each batcher that dies, but not for ever', async () => {
    open();
    const whole = makeJob({ stopping: { maxTokens: 40, ignoreEos: true } });
    await rig.submit(whole);
    await rig.settled();
    const events = rig.eventsOf(whole.id);
    // Each attempt has recorded three events more, and died.
    const job = { ...whole, id: `${whole.id}-unlucky` };
    const recorded = events.slice(0, 15).map((event, index) => ({ ...event, id: job.id, attempt: 1 + Math.floor(index / 3) }));
    rig.events.set(job.id, recorded);
    await rig.submit(job, 6);
    await rig.settled();
    expect(rig.textOf(job.id)).toBe(rig.textOf(whole.id));

    const stuck = { ...whole, id: `${whole.id}-stuck` };
    const seen = recorded.slice(0, 3).map(event => ({ ...event, id: stuck.id }));
    const tried = [3, 4].map(attempt => ({ id: stuck.id, attempt, seq: attempt, type: 'tried' as const }));
    rig.events.set(stuck.id, [...seen, ...tried]);
    await rig.submit(stuck, 5);
    await rig.settled();
    expect(rig.eventsOf(stuck.id).at(-1)).toMatchObject({ type: 'error', code: 'generation_failed' });

    const hopeless = { ...whole, id: `${whole.id}-hopeless` };
    rig.events.set(
      hopeless.id,
      events.slice(0, 15).map((event, index) => ({ ...event, id: hopeless.id, attempt: index + 1 })),
    );
    await rig.submit(hopeless, 16);
    await rig.settled();
    expect(rig.eventsOf(hopeless.id).at(-1)).toMatchObject({ type: 'error', code: 'generation_failed' });
  });

  it('fails only the jobs of a run that failed', async () => {
    const { engine } = open();
    const job = makeJob();
    engine.failNext(new Error('onnxruntime Run: out of memory'));
    await rig.submit(job);
    await rig.settled();
    expect(rig.eventsOf(job.id).at(-1)).toMatchObject({ type: 'error', code: 'generation_failed' });
    const next = makeJob();
    await rig.submit(next);
    await rig.settled();
    expect(rig.eventsOf(next.id).at(-1)).toMatchObject({ type: 'finish' });
  });

  it('fails alone when its logits are no numbers', async () => {
    open({
      shapeLogits: (logits, cell) => {
        if (cell.tokenId === 5) logits.fill(Number.NaN);
      },
    });
    const bad = makeJob();
    const good = makeJob({ prompt: { kind: 'tokens', tokenIds: [6, 7, 8] }, sampling: { temperature: 0, logitBias: { 5: -100 } } });
    await Promise.all([rig.submit(bad), rig.submit(good)]);
    await rig.settled();
    expect(rig.eventsOf(bad.id).at(-1)).toMatchObject({ type: 'error', code: 'generation_failed' });
    expect(rig.eventsOf(good.id).at(-1)).toMatchObject({ type: 'finish' });
  });

  it('ends alone when its record turns out to be of another type', async () => {
    open();
    const bad = makeJob();
    const good = makeJob();
    rig.standings.set(bad.id, 'broken');
    await Promise.all([rig.submit(bad), rig.submit(good)]);
    await rig.settled();
    expect(rig.completed).toEqual(expect.arrayContaining([bad.id, good.id]));
    expect(rig.eventsOf(good.id).at(-1)).toMatchObject({ type: 'finish' });
  });

  it('under the id of another is taken off the queue unread', async () => {
    open();
    const job = makeJob();
    await rig.submit({ ...job, id: 'another' }, 1, job.id);
    await rig.settled();
    expect(rig.completed).toEqual([job.id]);
    expect(rig.eventsOf('another')).toEqual([]);
    expect(rig.errors[0]!.message).toContain('the id of another');
  });

  it('sends again what could not be sent, in order', async () => {
    open();
    rig.failingSends = 2;
    const job = makeJob();
    await rig.submit(job);
    await rig.settled();
    checkRecord(rig.eventsOf(job.id));
    expect(rig.errors).toHaveLength(2);
  });

  it('does not try a job for ever that it cannot even start', async () => {
    open();
    rig.failingClaims = 5;
    const job = makeJob();
    await rig.submit(job, 2);
    expect(rig.givenBack).toEqual([job.id]);
    await rig.submit(job, 3);
    await rig.settled();
    expect(rig.eventsOf(job.id)).toMatchObject([{ type: 'error', code: 'generation_failed' }]);
    expect(rig.completed).toEqual([job.id]);
  });

  it('takes a job back off that it cannot read', async () => {
    open();
    await rig.submit({ ...makeJob(), prompt: { kind: 'riddle' } } as never);
    expect(rig.completed).toHaveLength(1);
    expect(rig.errors[0]?.message).toContain('unreadable job');
  });

  it.each([
    ['greedy', { temperature: 0 }],
    ['unseeded', { temperature: 0.9, frequencyPenalty: 0.4 }],
  ])('emits with drafts what it would without: %s', async (_name, sampling) => {
    // Logits that follow the last token only make text that repeats itself, which drafts foretell.
    const shapeLogits: RigOptions['shapeLogits'] = (logits, cell) =>
      logits.forEach((_, id) => {
        logits[id] = ((cell.tokenId * 7 + id * 13) % 31) / 4;
      });
    open({ shapeLogits });
    const job = makeJob({ sampling, stopping: { maxTokens: 120, ignoreEos: true } });
    await rig.submit(job);
    await rig.settled();
    expect(rig.draftCount).toBeGreaterThan(0);
    const plain = new Rig({ shapeLogits, speculation: false });
    await plain.submit(job);
    await plain.settled();
    expect(plain.draftCount).toBe(0);
    expect(tokensOf(rig.eventsOf(job.id))).toEqual(tokensOf(plain.eventsOf(job.id)));
    await plain.close();
  });

  it('gives each prompt of a list what it gets alone, and sums the usage', async () => {
    open();
    const prompts = [
      [1, 2, 3],
      [4, 5, 6, 7, 8, 9, 10],
      [1, 2, 3],
    ].map(tokenIds => ({ kind: 'tokens' as const, tokenIds }));
    const [prompt, ...morePrompts] = prompts as [(typeof prompts)[0], ...typeof prompts];
    const parts = { choiceCount: 2, sampling: { temperature: 1, seed: 4 } };
    const job = makeJob({ ...parts, prompt, morePrompts });
    await rig.submit(job);
    await rig.settled();
    const events = rig.eventsOf(job.id);
    checkRecord(events);
    expect(events[0]).toMatchObject({ type: 'accepted', promptTokens: 13 });
    expect(events.at(-1)).toMatchObject({ usage: { promptTokens: 13, completionTokens: 6 * 12 } });
    const alone = new Rig();
    for (const [index, one] of prompts.entries()) {
      const single = makeJob({ ...parts, prompt: one });
      await alone.submit(single);
      await alone.settled();
      for (const choice of [0, 1]) {
        expect(tokensOf(events, index * 2 + choice)).toEqual(tokensOf(alone.eventsOf(single.id), choice));
      }
    }
    await alone.close();
  });

  it('answers equal prompts of a list differently when no seed is given', async () => {
    open();
    const prompt = { kind: 'tokens' as const, tokenIds: [1, 2, 3] };
    const job = makeJob({ prompt, morePrompts: [prompt], sampling: { temperature: 2 }, stopping: { maxTokens: 40, ignoreEos: true } });
    await rig.submit(job);
    await rig.settled();
    expect(tokensOf(rig.eventsOf(job.id), 0)).not.toEqual(tokensOf(rig.eventsOf(job.id), 1));
  });

  it('refuses a list whole when one of its prompts is too long', async () => {
    open({ shape: { contextTokens: 32 } });
    const job = makeJob({ morePrompts: [{ kind: 'tokens', tokenIds: Array(32).fill(1) }] });
    await rig.submit(job);
    await rig.settled();
    expect(rig.eventsOf(job.id)).toMatchObject([{ type: 'error', code: 'context_length_exceeded', param: 'prompt' }]);
    expect(rig.scheduler.runningCount + rig.scheduler.waitingCount).toBe(0);
  });

  it('tells a job once that a sampler cannot follow, and does not take it again', async () => {
    open();
    const job = makeJob({ sampling: { temperature: 0, logitBias: { 999999: 1 } } });
    await rig.submit(job);
    await rig.settled();
    expect(rig.eventsOf(job.id)).toMatchObject([{ type: 'error', code: 'invalid_value' }]);
    expect(rig.completed).toEqual([job.id]);
    expect(rig.givenBack).toEqual([]);
  });

  const LONG = Array.from({ length: 150 }, (_, i) => 1 + ((i * i) % 26));
  const echoOf = (events: TokenEvent[]) => events.flatMap(event => (event.type === 'echo' ? [event] : []));
  const letters = LONG.map(id => String.fromCharCode(96 + id)).join('');

  it('tells the prompt before its choices', async () => {
    open();
    const job = makeJob({ prompt: { kind: 'tokens', tokenIds: LONG }, choiceCount: 2, echo: 'text' });
    await rig.submit(job);
    await rig.settled();
    const events = rig.eventsOf(job.id);
    checkRecord(events);
    expect(events[1]).toMatchObject({ type: 'echo', prompt: 0, tokenCount: 150, text: letters });
    expect(echoOf(events)).toHaveLength(1);
  });

  it.each([
    ['and goes on', 12],
    ['and samples nothing', 0],
  ])('scores a prompt %s: each token by the logits of the position before', async (_name, maxTokens) => {
    open();
    const job = makeJob({
      prompt: { kind: 'tokens', tokenIds: LONG },
      stopping: { maxTokens, ignoreEos: true },
      sampling: { temperature: 0, topLogprobs: 1 },
      echo: 'scored',
      choiceCount: 2,
    });
    // What is in the store has no logits.
    await rig.submit(makeJob({ prompt: { kind: 'tokens', tokenIds: LONG } }));
    await rig.settled();
    await rig.submit(job);
    await rig.settled();
    const events = rig.eventsOf(job.id);
    checkRecord(events);
    const tokens = echoOf(events).flatMap(event => event.tokens ?? []);
    expect(echoOf(events).length).toBeGreaterThan(2);
    expect(
      echoOf(events)
        .map(event => event.text)
        .join(''),
    ).toBe(letters);
    expect(tokens.map(token => token.tokenId)).toEqual(LONG);
    expect(tokens[0]!.logprob).toBeNull();
    expect(events.at(-1)).toMatchObject({ usage: { promptTokens: 150, completionTokens: 2 * maxTokens, cachedTokens: 0 } });
    const firstDelta = events.findIndex(event => event.type === 'delta');
    expect(events.findLastIndex(event => event.type === 'echo')).toBeLessThan(firstDelta);
    for (const choice of [0, 1]) expect(tokensOf(events, choice)).toHaveLength(maxTokens);
    // The same logits say what is likely after each beginning of the prompt.
    for (const length of [1, 2, 63, 64, 65, 149]) {
      const probe = makeJob({
        prompt: { kind: 'tokens', tokenIds: LONG.slice(0, length) },
        stopping: { maxTokens: 1, ignoreEos: true },
        sampling: { temperature: 0, topLogprobs: 1 },
      });
      await rig.submit(probe);
      await rig.settled();
      const [likely] = rig.eventsOf(probe.id).flatMap(event => (event.type === 'delta' ? (event.logprobs ?? []) : []));
      expect(tokens[length]!.top).toMatchObject(likely!.top.map(({ tokenId, logprob }) => ({ tokenId, logprob })));
    }
  });

  it.each(['text', 'scored'] as const)('goes on where a dead batcher stopped telling a prompt: %s', async echo => {
    open();
    const whole = makeJob({
      prompt: { kind: 'tokens', tokenIds: LONG },
      morePrompts: [{ kind: 'tokens', tokenIds: [3, 4, 5] }],
      sampling: { temperature: 1, seed: 2, topLogprobs: 2 },
      choiceCount: 2,
      echo,
    });
    await rig.submit(whole);
    await rig.settled();
    const record = rig.eventsOf(whole.id);
    const told = (events: TokenEvent[], prompt: number) => {
      const own = echoOf(events).filter(event => event.prompt === prompt);
      return { text: own.map(event => event.text).join(''), tokens: own.flatMap(event => event.tokens ?? []) };
    };
    for (let cut = 0; cut <= record.length; cut += cut < 8 ? 1 : 9) {
      const next = new Rig();
      next.events.set(whole.id, structuredClone(record.slice(0, cut)));
      await next.submit(whole, 2);
      await next.settled();
      const events = next.eventsOf(whole.id);
      checkRecord(events);
      expect(events.at(-1)).toMatchObject({ type: 'finish' });
      for (const prompt of [0, 1]) expect(told(events, prompt)).toEqual(told(record, prompt));
      for (const choice of [0, 1, 2, 3]) expect(tokensOf(events, choice)).toEqual(tokensOf(record, choice));
      await next.close();
    }
  });

  it('ends a job of which everything but the end was recorded', async () => {
    open();
    const job = makeJob();
    await rig.submit(job);
    await rig.settled();
    const next = new Rig();
    next.events.set(job.id, structuredClone(rig.eventsOf(job.id).slice(0, -1)));
    await next.submit(job, 2);
    await next.settled();
    checkRecord(next.eventsOf(job.id));
    expect(next.eventsOf(job.id).at(-1)).toMatchObject({ type: 'finish', usage: { completionTokens: 12 } });
    await next.close();
  });

  it('preempts when memory runs out and finishes everything', async () => {
    open({ budgetBlocks: 10, maxRunning: 8 });
    const jobs = Array.from({ length: 12 }, (_, i) =>
      makeJob({
        prompt: { kind: 'tokens', tokenIds: [1 + i, 2, 3] },
        stopping: { maxTokens: 60, ignoreEos: true },
        sampling: { temperature: 1, seed: i },
      }),
    );
    await Promise.all(jobs.map(job => rig.submit(job)));
    await rig.settled();
    for (const job of jobs) {
      checkRecord(rig.eventsOf(job.id));
      expect(rig.eventsOf(job.id).at(-1)).toMatchObject({ type: 'finish', usage: { completionTokens: 60 } });
    }
    expect(rig.scheduler.preemptionCount).toBeGreaterThan(0);
  });
});
