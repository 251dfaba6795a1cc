/** EmbeddingJobs with loop and queue, over a fake engine and a record in memory: every way that a job can go. */
import { afterEach, describe, expect, test } from 'vitest';
import type { EmbeddingJob } from '../../../batcher/encoder/embedding-job.ts';
import { EmbeddingJobs } from '../../../batcher/encoder/embedding-jobs.ts';
import type { EncoderEngine } from '../../../batcher/encoder/encoder-engine.ts';
import { EncoderLoop } from '../../../batcher/encoder/encoder-loop.ts';
import { TextQueue } from '../../../batcher/encoder/text-queue.ts';
import { WordPiece } from '../../../batcher/model/word-piece.ts';
import type { Dispatch, Standing } from '../../../batcher/outbox.ts';
import { Publisher } from '../../../batcher/publisher.ts';
import type { TakenJob } from '../../../batcher/queue-worker.ts';
import { StepRates } from '../../../batcher/step-rates.ts';
import type { Job, Prompt, Task } from '../../../shared/job.ts';
import type { TokenEvent } from '../../../shared/token-event.ts';
import { TINY_PIECES } from '../model/tiny-encoder.ts';

const WIDTH = 2;
const CONTEXT = 6;
const tokenizer = new WordPiece({
  ...{ pieces: TINY_PIECES, lowercase: true, stripAccents: true, splitsCjk: true, longestWord: 6 },
  ...{ unknownId: 1, beginId: 2, endId: 3, controlIds: [0, 1, 2, 3, 4] },
});

/** A text's vector is its length and its first token after the beginning. */
class FakeEngine implements EncoderEngine {
  readonly shape = { width: WIDTH, vocabSize: TINY_PIECES.length, contextTokens: CONTEXT };
  readonly runs: number[][][] = [];
  /** The next run waits for it. */
  gate: Promise<void> | undefined;
  fault: Error | undefined;

  async embed(texts: readonly (readonly number[])[]): Promise<Float32Array> {
    this.runs.push(texts.map(text => [...text]));
    await this.gate;
    if (this.fault !== undefined) throw this.fault;
    return Float32Array.from(texts.flatMap(text => [text.length, text[1] ?? 0]));
  }

  close(): void {}
}

class Rig {
  readonly engine = new FakeEngine();
  readonly events = new Map<string, TokenEvent[]>();
  /** Types of what was sent together. */
  readonly sent: string[][] = [];
  readonly standings = new Map<string, Standing>();
  readonly settled: string[] = [];
  readonly errors: string[] = [];
  readonly jobs: EmbeddingJobs;
  readonly #loop: EncoderLoop;
  readonly #running: Promise<void>;

  constructor() {
    const queue = new TextQueue();
    const outbox = {
      claim: async ({ jobId }: { jobId: string }) => ({
        standing: this.standings.get(jobId) ?? ('ok' as const),
        events: this.events.get(jobId) ?? [],
      }),
      send: async (dispatches: readonly Dispatch[]): Promise<Standing[]> => {
        this.sent.push(dispatches.flatMap(({ events }) => events.map(event => event.type)));
        return dispatches.map(({ recipient: { jobId }, events }) => {
          const standing = this.standings.get(jobId) ?? 'ok';
          if (standing !== 'fenced') this.events.set(jobId, [...(this.events.get(jobId) ?? []), ...events]);
          return standing;
        });
      },
    };
    const publisher = new Publisher<EmbeddingJob>({
      outbox,
      onStanding: (job, standing) => this.jobs.stands(job, standing),
      onRecorded: (job, events) => this.jobs.recorded(job, events),
      onSettled: job => this.jobs.settled(job),
      onError: error => this.errors.push(error.message),
    });
    this.jobs = new EmbeddingJobs({
      ...{ queue, outbox, publisher, tokenizer, contextTokens: CONTEXT, width: WIDTH, maxAttempts: 3, clock: () => 1_000 },
      wake: () => this.#loop.wake(),
      onError: error => this.errors.push(error.message),
    });
    this.#loop = new EncoderLoop({
      ...{ engine: this.engine, queue, publisher, rates: new StepRates(), bounds: { tokens: 12, places: 24 }, isNormalized: true },
      runFailed: jobs => {
        for (const job of jobs) this.jobs.fail(job, 'generation_failed', 'It could not be run.');
      },
    });
    this.#running = this.#loop.run();
  }

  taken(id: string, input: string | string[] | number[], more: Partial<TakenJob> & { task?: Task } = {}): TakenJob {
    const { task = { kind: 'embed' }, ...rest } = more;
    const texts = typeof input === 'string' ? [input] : input;
    const isIds = typeof texts[0] === 'number';
    const [prompt, ...morePrompts]: Prompt[] = isIds
      ? [{ kind: 'tokens', tokenIds: texts as number[] }]
      : (texts as string[]).map(text => ({ kind: 'text', text }));
    const data: Job = {
      ...{ version: 1, id, model: 'm', tenant: id, shard: 's', task, prompt: prompt!, morePrompts, sampling: { temperature: 0 } },
      ...{ stopping: { maxTokens: 0 }, choiceCount: 1, serviceClass: 'default', submittedAt: 900 },
    };
    return {
      ...{ id, data, attempt: 1, deathCount: 0 },
      complete: async () => void this.settled.push(`${id} completed`),
      giveBack: async () => void this.settled.push(`${id} given back`),
      ...rest,
    };
  }

  async ended(id: string): Promise<TokenEvent[]> {
    while (!this.settled.some(line => line.startsWith(`${id} `))) await new Promise(resolve => setImmediate(resolve));
    return this.events.get(id) ?? [];
  }

  async stop(): Promise<void> {
    this.#loop.stop();
    await this.#running;
  }
}

let rig: Rig;
const open = () => {
  rig = new Rig();
  return rig;
};
afterEach(() => rig.stop());

function numbersOf(events: readonly TokenEvent[]): number[][] {
  return events.flatMap(event => {
    if (event.type !== 'embeddings') return [];
    return event.vectors.map(vector => {
      const bytes = Uint8Array.from(Buffer.from(vector, 'base64'));
      return [...new Float32Array(bytes.buffer)];
    });
  });
}

test('texts of a job, in their order, over several runs', async () => {
  const { jobs, engine } = open();
  await jobs.submit(rig.taken('j', ['a', 'b c', 'the car', 'd', 'e']));
  const events = await rig.ended('j');
  expect(numbersOf(events)).toEqual([
    [3, 5],
    [4, 6],
    [4, 21],
    [3, 8],
    [3, 9],
  ]);
  expect(events.map(({ seq }) => seq)).toEqual([...events.keys()]);
  expect(events[0]).toMatchObject({ type: 'accepted', promptTokens: 17 });
  expect(events.at(-1)).toMatchObject({ type: 'finish', usage: { promptTokens: 17, completionTokens: 0 }, timings: { queueMs: 100 } });
  expect(engine.runs.length).toBeGreaterThan(1);
  expect([rig.settled, jobs.count]).toEqual([['j completed'], 0]);
});

test('a small job is told of once, a large one before it runs and after each run', async () => {
  const { jobs, engine, sent } = open();
  await jobs.submit(rig.taken('small', 'a'));
  await rig.ended('small');
  expect(sent).toEqual([['accepted', 'embeddings', 'finish']]);
  sent.length = 0;
  const gate = Promise.withResolvers<void>();
  engine.gate = gate.promise;
  await jobs.submit(rig.taken('large', Array<string>(200).fill('a')));
  await new Promise(resolve => setImmediate(resolve));
  expect(sent).toEqual([['accepted']]);
  gate.resolve();
  await rig.ended('large');
});

test('a small job that waits is told of when the run before its own ends', async () => {
  const { jobs, engine, sent } = open();
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  engine.gate = gates[0]!.promise;
  await jobs.submit(rig.taken('first', 'a'));
  await jobs.submit(rig.taken('second', 'b'));
  engine.gate = gates[1]!.promise;
  gates[0]!.resolve();
  await rig.ended('first');
  expect(sent.flat().sort()).toEqual(['accepted', 'accepted', 'embeddings', 'finish']);
  gates[1]!.resolve();
  await rig.ended('second');
});

test('jobs that come while others run join the next run', async () => {
  const { jobs, engine } = open();
  const gate = Promise.withResolvers<void>();
  engine.gate = gate.promise;
  await jobs.submit(rig.taken('first', 'a'));
  await jobs.submit(rig.taken('second', 'b'));
  await jobs.submit(rig.taken('third', 'c'));
  engine.gate = undefined;
  gate.resolve();
  await Promise.all(['first', 'second', 'third'].map(id => rig.ended(id)));
  expect(engine.runs).toEqual([
    [[2, 5, 3]],
    [
      [2, 6, 3],
      [2, 7, 3],
    ],
  ]);
});

test('fewer numbers, of length 1 again', async () => {
  const { jobs } = open();
  await jobs.submit(rig.taken('j', 'a', { task: { kind: 'embed', dimensions: 1 } }));
  expect(numbersOf(await rig.ended('j'))).toEqual([[1]]);
});

test('token ids as they are, and what is cut', async () => {
  const { jobs, engine } = open();
  await jobs.submit(rig.taken('ids', [5, 6]));
  await jobs.submit(rig.taken('cut', 'a b c d e f g', { task: { kind: 'embed', truncateTokens: 4 } }));
  await jobs.submit(rig.taken('all', 'a b c d e f g', { task: { kind: 'embed', truncateTokens: 1_000_000 } }));
  await jobs.submit(rig.taken('cut ids', [5, 6, 7, 8, 9], { task: { kind: 'embed', truncateTokens: 2 } }));
  for (const id of ['ids', 'cut', 'all', 'cut ids']) await rig.ended(id);
  expect(engine.runs.flat()).toEqual(
    expect.arrayContaining([
      [5, 6],
      [2, 5, 6, 3],
      [2, 5, 6, 7, 8, 3],
    ]),
  );
});

describe('refused, by the name of the field', () => {
  test.each<[string, string | string[] | number[], Task, string, string]>([
    ['too long', 'a b c d e f', { kind: 'embed' }, 'context_length_exceeded', 'input'],
    ['too long among others', ['a', 'a b c d e f'], { kind: 'embed' }, 'context_length_exceeded', 'input[1]'],
    ['long without tokens', ' '.repeat(1_000), { kind: 'embed' }, 'context_length_exceeded', 'input'],
    ['ids beyond the vocabulary', [5, 24], { kind: 'embed' }, 'invalid_value', 'input'],
    ['more numbers than there are', 'a', { kind: 'embed', dimensions: 3 }, 'invalid_value', 'dimensions'],
    ['another task', 'a', { kind: 'detokenize' }, 'invalid_value', 'model'],
  ])('%s', async (_name, input, task, code, param) => {
    const { jobs, engine } = open();
    await jobs.submit(rig.taken('j', input, { task }));
    expect(await rig.ended('j')).toMatchObject([{ type: 'error', seq: 0, code, param }]);
    expect([engine.runs, rig.settled]).toEqual([[], ['j completed']]);
  });
});

test('a batcher that died has left a part: the next one goes on behind it', async () => {
  const { jobs, engine } = open();
  const head = { id: 'j', attempt: 1 };
  const done = Buffer.from(Float32Array.of(9, 9).buffer).toString('base64');
  rig.events.set('j', [
    { ...head, seq: 0, type: 'accepted', promptTokens: 9 },
    { ...head, seq: 1, type: 'embeddings', first: 0, dimensions: 2, vectors: [done, done] },
  ]);
  await jobs.submit(rig.taken('j', ['a', 'b', 'c'], { attempt: 2 }));
  const events = await rig.ended('j');
  expect(engine.runs).toEqual([[[2, 7, 3]]]);
  expect(events.map(({ seq, type }) => [seq, type]).slice(2)).toEqual([
    [2, 'embeddings'],
    [3, 'finish'],
  ]);
  expect(events[2]).toMatchObject({ first: 2, attempt: 2 });
});

test('one that was told to its end but for the end is finished', async () => {
  const { jobs, engine } = open();
  const vector = Buffer.from(Float32Array.of(9, 9).buffer).toString('base64');
  rig.events.set('j', [
    { id: 'j', attempt: 1, seq: 0, type: 'accepted', promptTokens: 3 },
    { id: 'j', attempt: 1, seq: 1, type: 'embeddings', first: 0, dimensions: 2, vectors: [vector] },
  ]);
  await jobs.submit(rig.taken('j', 'a', { attempt: 2 }));
  expect((await rig.ended('j')).at(-1)).toMatchObject({ type: 'finish', seq: 2 });
  expect(engine.runs).toEqual([]);
});

test('one whose client has left is dropped, and no more of it is computed', async () => {
  const { jobs, engine } = open();
  rig.standings.set('j', 'cancelled');
  await jobs.submit(rig.taken('j', new Array<string>(50).fill('a b c')));
  expect((await rig.ended('j')).at(-1)).toMatchObject({ type: 'error', code: 'request_cancelled' });
  expect(engine.runs.length).toBeLessThan(10);
});

test('one that another attempt has taken over is left to it', async () => {
  const { jobs } = open();
  rig.standings.set('j', 'fenced');
  await jobs.submit(rig.taken('j', 'a'));
  while (jobs.count > 0) await new Promise(resolve => setImmediate(resolve));
  expect([rig.settled, rig.events.get('j')]).toEqual([[], undefined]);
});

test('a run that fails ends the jobs in it, and no others', async () => {
  const { jobs, engine } = open();
  engine.fault = new Error('no memory');
  await jobs.submit(rig.taken('j', 'a'));
  expect((await rig.ended('j')).at(-1)).toMatchObject({ type: 'error', code: 'generation_failed' });
  engine.fault = undefined;
  await jobs.submit(rig.taken('k', 'a'));
  expect((await rig.ended('k')).at(-1)).toMatchObject({ type: 'finish' });
});

test('one over which batchers die is given up once it was there alone; what cannot be read leaves the queue', async () => {
  const { jobs, engine } = open();
  const head = { id: 'j', attempt: 3 };
  rig.events.set('j', [
    { ...head, seq: 0, type: 'accepted', promptTokens: 1 },
    { ...head, seq: 1, type: 'tried' },
    { ...head, attempt: 4, seq: 2, type: 'tried' },
  ]);
  await jobs.submit(rig.taken('j', 'a', { attempt: 5, deathCount: 4 }));
  expect((await rig.ended('j')).at(-1)).toMatchObject({ type: 'error', code: 'generation_failed' });
  await jobs.submit(rig.taken('k', 'a', { data: { id: 'k' } }));
  expect([engine.runs, rig.settled]).toEqual([[], ['j completed', 'k completed']]);
});

test('suspects run one at a time, and the innocent get through', async () => {
  const { jobs, engine } = open();
  await Promise.all(['i', 'j', 'k'].map(id => jobs.submit(rig.taken(id, 'a', { attempt: 4, deathCount: 3 }))));
  for (const id of ['i', 'j', 'k']) expect((await rig.ended(id)).at(-1)).toMatchObject({ type: 'finish' });
  expect(engine.runs.map(run => run.length)).toEqual([1, 1, 1]);
  expect(rig.events.get('j')!.map(event => event.type)).toEqual(['tried', 'accepted', 'embeddings', 'finish']);
});

test('a suspect that leaves makes room for the next', async () => {
  const { jobs, engine } = open();
  const gate = Promise.withResolvers<void>();
  engine.gate = gate.promise;
  await jobs.submit(rig.taken('i', 'a', { attempt: 4, deathCount: 3 }));
  await jobs.submit(rig.taken('j', 'a', { attempt: 4, deathCount: 3 }));
  jobs.lost('i');
  gate.resolve();
  expect((await rig.ended('j')).at(-1)).toMatchObject({ type: 'finish' });
});

test('a drain gives the rest back', async () => {
  const { jobs, engine } = open();
  engine.gate = new Promise(() => undefined);
  await jobs.submit(rig.taken('j', ['a', 'b']));
  await jobs.giveBackAll();
  expect([rig.settled, jobs.count]).toEqual([['j given back'], 0]);
  engine.gate = undefined;
  rig = new Rig();
});

test('there is room until there is much to do', async () => {
  const { jobs, engine } = open();
  const gate = Promise.withResolvers<void>();
  engine.gate = gate.promise;
  for (let i = 0; i < 64; i++) {
    expect(jobs.hasRoom).toBe(true);
    await jobs.submit(rig.taken(`j${i}`, 'a'));
  }
  expect(jobs.hasRoom).toBe(false);
  engine.gate = undefined;
  gate.resolve();
  await rig.ended('j63');
  expect(jobs.hasRoom).toBe(true);
});
