import { describe, expect, test } from 'vitest';
import { RequestRefused, type SequenceRequest } from '../../../batcher/scheduler/sequence-request.ts';
import type { StepPlan } from '../../../batcher/scheduler/step-plan.ts';
import { argmax, reference } from '../fake-engine.ts';
import { random } from '../random.ts';
import { type HarnessOptions, SchedulerHarness } from './scheduler-harness.ts';

function harness(options: Partial<HarnessOptions> = {}): SchedulerHarness {
  return new SchedulerHarness({
    budgetBlocks: 200,
    ...options,
    settings: { maxBatchedTokens: 64, chunkTokens: 16, ...options.settings },
    engine: { ...options.engine, shape: { rowCount: 4, blockTokens: 4, contextTokens: 128, ...options.engine?.shape } },
  });
}

function prompt(count: number, first = 1): number[] {
  return Array.from({ length: count }, (_, i) => (first + i * 7) % 32);
}

function watch(tested: SchedulerHarness): StepPlan[] {
  const plans: StepPlan[] = [];
  tested.onPlan = plan => plans.push(structuredClone(plan));
  return plans;
}

function refusal(act: () => void): string {
  try {
    act();
  } catch (error) {
    if (error instanceof RequestRefused) return error.reason;
    throw error;
  }
  return 'accepted';
}

describe('one sequence', () => {
  test.each([1, 2, 3, 15, 16, 17, 18, 33, 50])('a prompt of %i tokens gives what it should, cold and warm', async count => {
    const tested = harness({ engine: { kernels: 'apart' } });
    const expected = reference(prompt(count), (logits, position) => (position < count + 8 ? argmax(logits) : undefined), {
      kernels: 'apart',
    });
    for (const id of ['cold', 'warm', 'again']) {
      tested.add({ id, promptTokenIds: prompt(count), reproducible: true });
      await tested.drain();
      expect(tested.generated(id)).toEqual(expected);
      expect(tested.get(id).end).toBe('limit');
    }
    tested.checkAtRest();
    expect(tested.get('cold').cachedTokens).toBe(0);
    // Whole blocks, but two tokens at least are computed.
    expect(tested.get('warm').cachedTokens).toBe(Math.max(0, Math.min(Math.floor(count / 4) * 4, count - 2)));
  });

  test('a long prompt goes in chunks, none of one token', async () => {
    const tested = harness();
    const plans = watch(tested);
    tested.add({ id: 'x', promptTokenIds: prompt(49) });
    await tested.drain();
    expect(plans.flatMap(plan => plan.chunks.map(chunk => chunk.tokenIds.length))).toEqual([16, 16, 15, 2]);
    expect(plans.flatMap(plan => plan.chunks.map(chunk => chunk.logitCount))).toEqual([0, 0, 0, 1]);
  });

  test('a chunk is bounded by where it starts, also one that starts behind a cached prefix', async () => {
    const tested = harness();
    const plans = watch(tested);
    tested.scheduler.setChunkTokens(16, start => 16 - start / 4);
    tested.add({ id: 'x', promptTokenIds: prompt(49) });
    await tested.drain();
    const chunks = plans.flatMap(plan => plan.chunks);
    expect(chunks.map(({ start, tokenIds }) => [start, tokenIds.length])).toEqual([
      [0, 16],
      [16, 12],
      [28, 9],
      [37, 6],
      // Never fewer than four.
      [43, 4],
      [47, 2],
    ]);
    plans.length = 0;
    tested.add({ id: 'y', promptTokenIds: [...prompt(40), ...prompt(20, 7)] });
    await tested.drain();
    const first = plans.flatMap(plan => plan.chunks)[0]!;
    expect(first.start).toBeGreaterThan(0);
    expect(first.tokenIds.length).toBe(Math.max(4, Math.floor(16 - first.start / 4)));
  });

  test('a scored prompt is computed whole, in small chunks, each with all of its logits', async () => {
    const tested = harness({ settings: { scoringChunkTokens: 8 } });
    tested.add({ id: 'before', promptTokenIds: prompt(25) });
    await tested.drain();
    const plans = watch(tested);
    tested.add({ id: 'x', promptTokenIds: prompt(25), scoresPrompt: true, choiceIds: ['x.0', 'x.1'] });
    await tested.drain();
    const chunks = plans.flatMap(plan => plan.chunks);
    expect(chunks.map(({ start, logitCount, sample }) => [start, logitCount, sample])).toEqual([
      [0, 8, false],
      [8, 8, false],
      [16, 7, false],
      [23, 2, true],
    ]);
    expect(tested.generated('x.0')).toEqual(tested.generated('before'));
    tested.checkAtRest();
  });

  test('a scored prompt that was preempted after its first token takes what it can from the store', async () => {
    const tested = harness({ budgetBlocks: 14, settings: { admissionWatermark: 0 } });
    const plans = watch(tested);
    for (const id of ['x', 'y'])
      tested.add({ id, promptTokenIds: prompt(20, id.charCodeAt(0)), maxNewTokens: 24, scoresPrompt: id === 'y' });
    await tested.drain();
    expect(plans.flatMap(plan => plan.preempted)).toEqual(['y']);
    const again = plans.flatMap(plan => plan.admitted).filter(admission => admission.resumed);
    expect(again).toMatchObject([{ sequenceId: 'y' }]);
    expect(again[0]!.cachedTokens).toBeGreaterThan(0);
  });

  test('its answer is found by the next turn of the conversation', async () => {
    const tested = harness();
    tested.add({ id: 'first', promptTokenIds: prompt(20), maxNewTokens: 20 });
    await tested.drain();
    tested.add({ id: 'second', promptTokenIds: [...tested.get('first').tokenIds, 5, 6, 7] });
    await tested.drain();
    // The last generated token was never computed.
    expect(tested.get('second').cachedTokens).toBe(36);
  });

  test('a reproducible one does not use what was decoded for another, until somebody prefilled it', async () => {
    const tested = harness({ engine: { kernels: 'apart' } });
    tested.add({ id: 'first', promptTokenIds: prompt(20), maxNewTokens: 20 });
    await tested.drain();
    const turn = [...tested.get('first').tokenIds, 5, 6, 7];
    for (const id of ['second', 'third']) {
      tested.add({ id, promptTokenIds: turn, reproducible: true });
      await tested.drain();
    }
    expect(tested.get('second').cachedTokens).toBe(20);
    expect(tested.get('third').cachedTokens).toBe(40);
    expect(tested.generated('second')).toEqual(tested.generated('third'));
  });

  test('the context is the end', async () => {
    const tested = harness();
    tested.add({ id: 'x', promptTokenIds: prompt(120), maxNewTokens: 1_000 });
    await tested.drain();
    expect(tested.get('x').tokenIds).toHaveLength(128);
    expect(tested.get('x').end).toBe('limit');
  });

  test('one that outgrows the whole budget is exhausted, not retried', async () => {
    const tested = harness({ budgetBlocks: 8 });
    tested.add({ id: 'x', promptTokenIds: prompt(10), maxNewTokens: 100 });
    await tested.drain();
    expect(tested.get('x').end).toBe('exhausted');
    expect(tested.get('x').tokenIds).toHaveLength(33);
    tested.checkAtRest();
  });

  test('tokens of a failed batcher are recomputed the way they were computed', async () => {
    const tested = harness({ engine: { kernels: 'apart' } });
    const plans = watch(tested);
    const choose = (logits: Float32Array, position: number): number | undefined => (position < 42 ? argmax(logits) : undefined);
    const expected = reference(prompt(30), choose, { kernels: 'apart' });
    tested.add({
      id: 'x',
      promptTokenIds: prompt(30),
      maxNewTokens: 12,
      reproducible: true,
      resume: { generatedTokenIds: expected.slice(0, 5) },
    });
    await tested.drain();
    expect(tested.generated('x')).toEqual(expected);
    expect(plans.flatMap(plan => plan.decode).filter(entry => !entry.sample)).toHaveLength(4);
    tested.add({ id: 'y', promptTokenIds: prompt(30, 2), maxNewTokens: 12, resume: { generatedTokenIds: [1, 2, 3, 4, 5] } });
    plans.length = 0;
    await tested.drain();
    expect(plans.flatMap(plan => plan.chunks.map(chunk => chunk.tokenIds.length))).toEqual([16, 16, 3]);
    expect(plans.flatMap(plan => plan.decode).every(entry => entry.sample)).toBe(true);
  });
});

describe('refusals', () => {
  test.each<[string, Partial<SequenceRequest>]>([
    ['empty_prompt', { promptTokenIds: [] }],
    ['context_exceeded', { promptTokenIds: prompt(128) }],
    ['kv_budget_exceeded', { promptTokenIds: prompt(64) }],
    ['invalid_request', { maxNewTokens: 0 }],
    ['invalid_request', { maxNewTokens: 1.5 }],
    ['invalid_request', { weight: 0 }],
    ['invalid_request', { choiceIds: [] }],
    ['duplicate_id', { choiceIds: ['p', 'p'] }],
    ['duplicate_id', { id: 'here' }],
    ['duplicate_id', { choiceIds: ['here'] }],
    ['nothing_to_generate', { maxNewTokens: 2, resume: { generatedTokenIds: [1, 2] } }],
    ['invalid_request', { choiceIds: ['p', 'q'], resume: { generatedTokenIds: [1] } }],
  ])('%s: %j', (reason, wish) => {
    const tested = harness({ budgetBlocks: 16 });
    tested.add({ id: 'here', promptTokenIds: prompt(5) });
    expect(refusal(() => tested.add({ id: 'x', promptTokenIds: prompt(5), choiceIds: wish.choiceIds ?? ['x.0'], ...wish }))).toBe(reason);
    expect(tested.scheduler.waitingCount).toBe(1);
    tested.scheduler.check();
  });

  test('the waiting line is bounded', () => {
    const tested = harness({ settings: { maxWaiting: 2 } });
    const add = (id: string): string => refusal(() => tested.add({ id, promptTokenIds: prompt(5) }));
    expect([add('a'), add('b'), add('c')]).toEqual(['accepted', 'accepted', 'waiting_full']);
  });

  test('plan and commit take turns', async () => {
    const tested = harness();
    tested.add({ id: 'x', promptTokenIds: prompt(5) });
    const plan = tested.scheduler.plan()!;
    expect(() => tested.scheduler.plan()).toThrow('committed first');
    expect(() => tested.scheduler.commit({ ...plan }, [])).toThrow('not in flight');
    expect(() => tested.scheduler.commit(plan, [])).toThrow('no outcome');
  });
});

describe('several sequences', () => {
  test('those that decode share a batch, rows dense', async () => {
    const tested = harness();
    const plans = watch(tested);
    for (const id of ['a', 'b', 'c', 'd']) tested.add({ id, promptTokenIds: prompt(6, id.charCodeAt(0)), maxNewTokens: 6 });
    await tested.drain();
    expect(Math.max(...plans.map(plan => plan.decode.length))).toBe(4);
    // Each prefilled in the row that it then decoded in; only those that outlived an earlier one moved.
    expect(tested.engine.counts.copies).toBeLessThanOrEqual(3);
  });

  test('case 44: every running sequence gets a token in every step of a long prefill; a short prompt does not wait for its end', async () => {
    const tested = harness({ engine: { shape: { contextTokens: 512 } } });
    tested.add({ id: 'running', promptTokenIds: prompt(4), maxNewTokens: 100 });
    await tested.step();
    tested.add({ id: 'long', promptTokenIds: prompt(300, 3), maxNewTokens: 2 });
    await tested.step();
    const before = tested.generated('running').length;
    tested.add({ id: 'short', promptTokenIds: prompt(8, 5), maxNewTokens: 2 });
    for (let i = 0; i < 6; i += 1) await tested.step();
    expect(tested.generated('running').length).toBe(before + 6);
    expect(tested.get('short').end).toBe('limit');
    expect(tested.generated('long')).toHaveLength(0);
    await tested.drain();
  });

  test('a stream of short prompts takes at most every other chunk from a long one', async () => {
    const tested = harness({ engine: { shape: { contextTokens: 512, rowCount: 8 } } });
    tested.add({ id: 'long', promptTokenIds: prompt(320, 3), maxNewTokens: 1 });
    await tested.step();
    let steps = 1;
    for (; tested.get('long').end === undefined && steps < 100; steps += 1) {
      tested.add({ id: `short${steps}`, promptTokenIds: prompt(8, steps), maxNewTokens: 1 });
      await tested.step();
    }
    expect(steps).toBeLessThanOrEqual(2 * (320 / 16) + 1);
    await tested.drain();
  });

  test('the lowest class, latest admitted is preempted, nobody is admitted then, and it ends all the same', async () => {
    const tested = harness({ budgetBlocks: 24, settings: { admissionWatermark: 0 }, engine: { kernels: 'apart' } });
    const plans = watch(tested);
    const classes = { p: 'priority', d: 'default', f1: 'flex', f2: 'flex' } as const;
    for (const [id, serviceClass] of Object.entries(classes))
      tested.add({ id, serviceClass, promptTokenIds: prompt(9, id.length * 3 + id.charCodeAt(0)), maxNewTokens: 22, reproducible: true });
    await tested.drain();
    tested.checkAtRest();
    const order = plans.flatMap(plan => plan.preempted);
    expect(order[0]).toBe('f2');
    expect(order).not.toContain('p');
    expect(tested.scheduler.preemptionCount).toBe(order.length);
    for (const id of Object.keys(classes)) {
      const { promptTokenIds } = tested.get(id).request;
      const choose = (logits: Float32Array, position: number): number | undefined => (position < 31 ? argmax(logits) : undefined);
      expect(tested.generated(id)).toEqual(reference(promptTokenIds, choose, { kernels: 'apart' }));
    }
  });

  test('a flood of one tenant takes half of the tokens from another that waits', async () => {
    const tested = harness({ settings: { fairnessBoundTokens: 0, maxWaiting: 1_000 }, checkEvery: 20 });
    const pick = random(9);
    let made = 0;
    const add = (tenant: string): void => {
      made += 1;
      tested.add({ id: `${tenant}${made}`, tenant, promptTokenIds: prompt(10 + pick(20), made), maxNewTokens: 10 });
    };
    for (let i = 0; i < 300; i += 1) add('flood');
    for (let i = 0; i < 30; i += 1) add('calm');
    const served = (tenant: string): number => tested.scheduler.tenants.find(each => each.tenant === tenant)?.servedPerWeight ?? 0;
    while (tested.scheduler.tenants.find(each => each.tenant === 'calm')!.waitingCount > 0) await tested.step();
    expect(served('calm') / served('flood')).toBeGreaterThan(0.9);
    expect(served('calm') / served('flood')).toBeLessThan(1.1);
  });

  test('a request with the same prompt as one in its prefill hits what is there already', async () => {
    const tested = harness();
    tested.add({ id: 'a', promptTokenIds: prompt(60) });
    tested.add({ id: 'b', promptTokenIds: prompt(60) });
    await tested.drain();
    expect(tested.get('b').cachedTokens).toBe(58);
  });

  test('several chunks a step: one with the prefix of another waits for it', async () => {
    const tested = harness({ settings: { maxChunksPerStep: 4 } });
    for (const id of ['a', 'b', 'c']) tested.add({ id, promptTokenIds: prompt(16) });
    await tested.drain();
    expect([tested.get('b').cachedTokens, tested.get('c').cachedTokens]).toEqual([14, 14]);
  });
});

describe('choices', () => {
  test('share one prefill and go on alone', async () => {
    const tested = harness({ engine: { kernels: 'apart', shape: { rowCount: 8 } } });
    const choiceIds = ['x.0', 'x.1', 'x.2', 'x.3'];
    tested.add({ id: 'x', promptTokenIds: prompt(30), choiceIds, reproducible: true });
    await tested.drain();
    tested.checkAtRest();
    expect(tested.engine.counts.prefill).toBe(2);
    for (const id of choiceIds) expect(tested.generated(id)).toEqual(tested.generated('x.0'));
  });

  test('one that ends with its first token leaves its row to another', async () => {
    const tested = new SchedulerHarness(
      { budgetBlocks: 200, engine: { shape: { rowCount: 4, blockTokens: 4, contextTokens: 64 } } },
      (logits, { tracked }) => ({ tokenId: (argmax(logits) + tracked.choice) % 32, finished: tracked.choice === 0 }),
    );
    tested.add({ id: 'x', promptTokenIds: prompt(10), choiceIds: ['x.0', 'x.1', 'x.2'] });
    await tested.drain();
    tested.checkAtRest();
    expect(tested.generated('x.0')).toHaveLength(1);
    expect(tested.generated('x.2')).toHaveLength(8);
    expect(tested.engine.counts.copies).toBeLessThanOrEqual(2);
  });

  test('more than there are rows or room for come after each other', async () => {
    const tested = harness({ budgetBlocks: 12, engine: { kernels: 'apart' } });
    const choiceIds = Array.from({ length: 8 }, (_, i) => `x.${i}`);
    tested.add({ id: 'x', promptTokenIds: prompt(14), choiceIds, reproducible: true });
    await tested.drain();
    tested.checkAtRest();
    for (const id of choiceIds) expect(tested.generated(id)).toEqual(tested.generated('x.0'));
  });

  test('one can end, or all be cancelled, while the shared prefill is in flight', async () => {
    const tested = harness();
    tested.add({ id: 'x', promptTokenIds: prompt(30), choiceIds: ['x.0', 'x.1', 'x.2'] });
    tested.inFlight = plan => {
      if (plan.step === 1) tested.finish('x.0');
      if (plan.step === 2) tested.finish('x.2');
    };
    await tested.drain();
    expect(tested.generated('x.1')).toHaveLength(8);
    tested.add({ id: 'y', promptTokenIds: prompt(30, 2), choiceIds: ['y.0', 'y.1'] });
    tested.inFlight = () => tested.cancel('y');
    await tested.step();
    expect(await tested.step()).toBe(true);
    tested.checkAtRest();
  });

  test('several are resumed with what each had', async () => {
    const tested = harness();
    tested.add({ id: 'x', promptTokenIds: prompt(20), choiceIds: ['x.0', 'x.1'], resumeChoices: [[1, 2, 3], []] });
    await tested.drain();
    expect(tested.generated('x.0').slice(0, 3)).toEqual([1, 2, 3]);
    expect(tested.generated('x.1')).toHaveLength(8);
  });
});

describe('drafts', () => {
  test('give the tokens that would come anyway, in fewer steps', async () => {
    const plain = harness();
    plain.add({ id: 'x', promptTokenIds: prompt(10), maxNewTokens: 30 });
    await plain.drain();
    const expected = plain.generated('x');
    const tested = harness();
    tested.add({ id: 'x', promptTokenIds: prompt(10), maxNewTokens: 30 });
    const pick = random(1);
    while (tested.alive().length > 0) {
      const known = tested.generated('x').length;
      const drafts = expected.slice(known, known + 5);
      if (pick(3) === 0 && drafts.length > 2) drafts[2] = (drafts[2]! + 1) % 32;
      tested.scheduler.proposeDrafts('x', drafts);
      await tested.step();
    }
    expect(tested.generated('x')).toEqual(expected);
    expect(tested.steps).toBeLessThan(plain.steps / 2);
  });

  test('are verified behind the prefill of the step, next to the decode batch', async () => {
    const tested = harness();
    const plans = watch(tested);
    tested.add({ id: 'stream', promptTokenIds: prompt(6), maxNewTokens: 20 });
    await tested.step();
    await tested.step();
    tested.add({ id: 'long', promptTokenIds: prompt(40, 3) });
    tested.scheduler.proposeDrafts('stream', [1, 2]);
    await tested.step();
    expect(plans.at(-1)!.chunks.map(chunk => [chunk.sequenceId, chunk.purpose])).toEqual([
      ['long', 'prefill'],
      ['stream', 'verify'],
    ]);
    await tested.drain();
  });

  test('are not taken from a reproducible sequence that did not ask, nor in a large batch', async () => {
    const tested = harness({ settings: { speculationMaxRunning: 1 } });
    const plans = watch(tested);
    tested.add({ id: 'seeded', promptTokenIds: prompt(6), reproducible: true });
    for (let i = 0; i < 3; i += 1) {
      tested.scheduler.proposeDrafts('seeded', [1, 2]);
      await tested.step();
    }
    tested.add({ id: 'other', promptTokenIds: prompt(6, 4) });
    await tested.step();
    for (let i = 0; i < 2; i += 1) {
      tested.scheduler.proposeDrafts('other', [1, 2]);
      await tested.step();
    }
    expect(plans.flatMap(plan => plan.chunks).every(chunk => chunk.purpose === 'prefill')).toBe(true);
    await tested.drain();
    tested.add({ id: 'asked', promptTokenIds: prompt(6, 9), reproducible: true, speculation: true });
    await tested.step();
    tested.scheduler.proposeDrafts('asked', [1, 2]);
    await tested.step();
    expect(plans.at(-1)!.chunks[0]).toMatchObject({ purpose: 'verify', logitCount: 3, sample: true, start: 6 });
    await tested.drain();
  });

  test('what was computed for them is nothing a reproducible sequence may use', async () => {
    const tested = harness();
    tested.add({ id: 'asked', promptTokenIds: prompt(8), maxNewTokens: 20, reproducible: true, speculation: true });
    while (tested.alive().length > 0) {
      tested.scheduler.proposeDrafts('asked', [1, 2, 3]);
      await tested.step();
    }
    await tested.drain();
    const resume = { generatedTokenIds: tested.generated('asked').slice(0, 16) };
    tested.add({ id: 'strict', promptTokenIds: prompt(8), maxNewTokens: 20, reproducible: true, resume });
    await tested.drain();
    expect(tested.get('strict').cachedTokens).toBe(8);
    tested.add({ id: 'stricter', promptTokenIds: prompt(8), maxNewTokens: 20, reproducible: true, resume });
    await tested.drain();
    // No: the first to be stored stays, unless the row is prefilled.
    expect(tested.get('stricter').cachedTokens).toBe(8);
  });

  test('only as much counts as was accepted, and only where it is what was drafted', () => {
    const { scheduler, engine } = harness();
    const request = { tenant: 'a', serviceClass: 'default', maxNewTokens: 30, arrivedAt: 0, reproducible: false } as const;
    scheduler.add({ ...request, id: 'x', promptTokenIds: prompt(6), choiceIds: ['x'] });
    scheduler.commit(scheduler.plan()!, [{ sequenceId: 'x', tokenIds: [1], finished: false }]);
    scheduler.proposeDrafts('x', [2, 3, 4]);
    scheduler.commit(scheduler.plan()!, [{ sequenceId: 'x', tokenIds: [2, 3], finished: false }]);
    scheduler.check();
    const next = scheduler.plan()!;
    expect(next.decode).toMatchObject([{ tokenId: 3, position: 8, sample: true }]);
    scheduler.commit(next, [{ sequenceId: 'x', tokenIds: [5], finished: false }]);
    scheduler.proposeDrafts('x', [6, 7]);
    scheduler.commit(scheduler.plan()!, [{ sequenceId: 'x', tokenIds: [9, 8], finished: false }]);
    expect(scheduler.plan()!.decode).toMatchObject([{ tokenId: 9, position: 10, sample: false }]);
    expect(engine.usedBlocks).toBe(0);
  });
});

test('a stream goes on from the end of its prefill to its own end, shared or not', async () => {
  const tested = harness();
  expect(tested.scheduler.isDecoding).toBe(false);
  tested.add({ id: 'x', promptTokenIds: prompt(20), choiceIds: ['x.0', 'x.1'] });
  await tested.step();
  expect(tested.scheduler.isDecoding).toBe(false);
  await tested.step();
  expect(tested.scheduler.isDecoding).toBe(true);
  tested.finish('x.0');
  // What is left of it forks in the next plan.
  expect(tested.scheduler.isDecoding).toBe(true);
  tested.finish('x.1');
  expect(tested.scheduler.isDecoding).toBe(false);
  tested.add({ id: 'limited', promptTokenIds: prompt(4), maxNewTokens: 2 });
  await tested.drain();
  expect(tested.scheduler.isDecoding).toBe(false);
});

describe('memory of rows that nobody holds', () => {
  const releasesOf = (tested: SchedulerHarness): number[] => {
    const counts: number[] = [];
    tested.onPlan = plan => counts.push(plan.releases.length);
    return counts;
  };

  test('is kept for the next, while the budget has it free', async () => {
    const tested = harness({ budgetBlocks: 40, storeBlocks: 0, settings: { spareShare: 0.5 } });
    const releases = releasesOf(tested);
    for (const id of ['first', 'second']) {
      tested.add({ id, promptTokenIds: prompt(20) });
      await tested.drain();
      expect(tested.kv.usage().rowBlocks).toBe(0);
      expect(tested.engine.usedBlocks).toBeGreaterThan(0);
    }
    expect(releases.every(count => count === 0)).toBe(true);
  });

  test('goes back as far as others need it, and beyond the share that may be kept', async () => {
    const tested = harness({ budgetBlocks: 12, storeBlocks: 0, settings: { spareShare: 0.25, admissionWatermark: 0 } });
    const releases = releasesOf(tested);
    tested.add({ id: 'long', promptTokenIds: prompt(30) });
    await tested.drain();
    // The harness holds the memory in use to the budget after every step.
    for (const id of ['a', 'b', 'c']) tested.add({ id, promptTokenIds: prompt(8, id.charCodeAt(0) % 7), maxNewTokens: 6 });
    await tested.drain();
    expect(tested.engine.usedBlocks).toBeLessThanOrEqual(3);
    expect(releases.some(count => count > 0)).toBe(true);
  });

  test('goes back at once where none may be kept', async () => {
    const tested = harness({ budgetBlocks: 40, storeBlocks: 0, settings: { spareShare: 0 } });
    tested.add({ id: 'only', promptTokenIds: prompt(20) });
    await tested.drain();
    expect(tested.engine.usedBlocks).toBe(0);
  });
});

test('forks and growth meet in every way at the end of the budget', async () => {
  for (let budgetBlocks = 9; budgetBlocks < 20; budgetBlocks += 1) {
    for (let length = 5; length < 14; length += 1) {
      const tested = harness({ budgetBlocks, settings: { admissionWatermark: 0 }, engine: { shape: { rowCount: 6 } } });
      tested.add({ id: 'old', serviceClass: 'priority', promptTokenIds: prompt(length, 3), maxNewTokens: 20 });
      await tested.step();
      tested.add({ id: 'x', promptTokenIds: prompt(9), choiceIds: ['x.0', 'x.1', 'x.2'], maxNewTokens: 12 });
      await tested.drain();
      tested.checkAtRest();
    }
  }
});

test('a batch of one reproducible sequence may be padded while a prefill runs in the next row', async () => {
  const tested = harness({ engine: { kernels: 'apart' } });
  tested.add({ id: 'seeded', promptTokenIds: prompt(6), maxNewTokens: 10, reproducible: true });
  await tested.step();
  tested.add({ id: 'long', promptTokenIds: prompt(100, 3) });
  await tested.drain();
  const choose = (logits: Float32Array, position: number): number | undefined => (position < 16 ? argmax(logits) : undefined);
  expect(tested.generated('seeded')).toEqual(reference(prompt(6), choose, { kernels: 'apart' }));
});

test('finish and cancel of what is unknown or over do nothing', async () => {
  const tested = harness();
  tested.scheduler.finish('nobody');
  tested.scheduler.cancel('nobody');
  tested.add({ id: 'x', promptTokenIds: prompt(6) });
  await tested.drain();
  tested.scheduler.finish('x');
  tested.scheduler.cancel('x');
  tested.scheduler.proposeDrafts('x', [1]);
  expect(tested.scheduler.plan()).toBeUndefined();
  tested.checkAtRest();
});
