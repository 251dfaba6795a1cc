/**
 * Bench `abort`: many requests through the whole path, a third of them cut by the client at a random moment: queued, in prefill, or in the
 * middle of the answer. Afterwards nothing of them may be left: no row, no job, no key without expiry, no memory.
 */
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { LeftoverProbe, type Leftovers, mib, residentBytes } from './leftovers.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import type { Findings } from './report.ts';
import { type SettingSpecs, UsageError } from './settings.ts';
import { type Stack, startStack } from './stack.ts';
import { randomSource } from './token-source.ts';

/** Resident memory may differ by this share between the end of the warm-up and the end: allocators round, pages come back late. */
const MEMORY_GROWTH_BAR = 1.05;
/** Of the client's patience while nothing has come yet. */
const EARLY_CUT_MS = 2_000;
const PROMPT_COUNT = 20;
const SAMPLE_MS = 500;

const SETTINGS = {
  ...commonSettings,
  requests: { kind: 'count', default: 200, min: 10, max: 1_000_000, help: 'requests, warm-up included' },
  'warm-up': { kind: 'count', default: 60, min: 1, max: 100_000, help: 'requests before memory is first read' },
  clients: { kind: 'count', default: 40, min: 1, max: 1024, help: 'requests at a time; more than the rows, so that some wait' },
  'max-tokens': { kind: 'count', default: 16, min: 2, max: 4096, help: 'tokens that each request generates' },
  seed: { kind: 'count', default: 1, min: 1, max: 0x7fffffff, help: 'of the random moments' },
} as const satisfies SettingSpecs;

export const abortBench = bench({
  settings: SETTINGS,
  async run(run) {
    if (run.settings.requests <= run.settings['warm-up']) throw new UsageError('--requests must be more than --warm-up');
    const model = await benchModel(run.settings, run.progress);
    return findings(model, await measure(run, model));
  },
});

type AbortRun = BenchRun<typeof SETTINGS>;

interface Measured {
  outcomes: StreamOutcome[];
  left: Leftovers;
  /** Keys without expiry that were not there after the warm-up. */
  newKeys: string[];
  residentBytes: { afterWarmUp: number; atMost: number; atEnd: number };
}

async function measure({ settings, progress, children }: AbortRun, model: BenchModel): Promise<Measured> {
  const text = await readText();
  const stack = await startStack({ model, threads: settings.threads, progress, children });
  const probe = new LeftoverProbe(stack.redisUrl, model.name);
  const resident = () => residentBytes(stack.batcherPid());
  const random = randomSource(settings.seed);
  // The same few prompts of mixed length over and over, so that what a cache may hold is held after the warm-up.
  const request = (index: number) =>
    oneRequest(stack, {
      content: passage(text, index % PROMPT_COUNT, 5 + 15 * (index % 5)),
      maxTokens: settings['max-tokens'],
      cut: index % 3 === 2 ? { early: random() < 0.5, place: random() } : undefined,
    });
  try {
    const outcomes = await inTurn(settings['warm-up'], settings.clients, request);
    await probe.settled();
    const lastingBefore = await probe.lastingKeys();
    const afterWarmUp = await resident();
    progress(`${settings['warm-up']} requests of warm-up done; resident ${mib(afterWarmUp)} MiB`);
    const samples = [afterWarmUp];
    // A sample that cannot be taken (the batcher is being started again) shows at the end anyway.
    const sampling = setInterval(
      () =>
        void resident().then(
          bytes => samples.push(bytes),
          () => undefined,
        ),
      SAMPLE_MS,
    );
    try {
      const rest = settings.requests - settings['warm-up'];
      outcomes.push(...(await inTurn(rest, settings.clients, index => request(index + settings['warm-up']))));
    } finally {
      clearInterval(sampling);
    }
    const left = await probe.settled();
    const newKeys = [...(await probe.lastingKeys())].filter(key => !lastingBefore.has(key));
    const atEnd = await resident();
    for (const fault of new Set(outcomes.flatMap(outcome => outcome.faults))) progress(`fault: ${fault}`);
    for (const key of newKeys) progress(`key without expiry: ${key}`);
    return { outcomes, left, newKeys, residentBytes: { afterWarmUp, atMost: Math.max(...samples, atEnd), atEnd } };
  } finally {
    await probe.close();
    await stack.close();
  }
}

function findings(model: BenchModel, { outcomes, left, newKeys, residentBytes: resident }: Measured): Findings {
  const faultCount = outcomes.flatMap(outcome => outcome.faults).length;
  const cutCount = outcomes.filter(outcome => outcome.isCut).length;
  const cutWithinTextCount = outcomes.filter(outcome => outcome.isCut && outcome.chunkTimes.length > 0).length;
  const growth = resident.atEnd / resident.afterWarmUp;
  return {
    title: `${outcomes.length} requests, ${cutCount} of them cut by the client, through the whole path on ${model.name}`,
    versions: model.versions,
    tables: [
      {
        title: 'After the last request',
        columns: ['', 'value'],
        rows: [
          ['ended whole', String(outcomes.length - cutCount)],
          ['cut before the first text', String(cutCount - cutWithinTextCount)],
          ['cut within the text', String(cutWithinTextCount)],
          ['faults of streams that were not cut', String(faultCount)],
          ['running rows', String(left.runningCount)],
          ['sequences waiting in the batcher', String(left.waitingCount)],
          ['jobs in Redis', String(left.jobCount)],
          ['new keys without expiry', String(newKeys.length)],
          ['resident MiB after warm-up', mib(resident.afterWarmUp)],
          ['resident MiB at most', mib(resident.atMost)],
          ['resident MiB at the end', mib(resident.atEnd)],
        ],
      },
    ],
    figures: {
      requestCount: outcomes.length,
      cutCount,
      cutWithinTextCount,
      faultCount,
      ...left,
      newLastingKeyCount: newKeys.length,
      residentBytes: { ...resident, growth },
    },
    bars: [
      { name: 'faults of streams that were not cut', value: faultCount, relation: '=', limit: 0 },
      { name: 'share of requests cut', value: cutCount / outcomes.length, relation: '>=', limit: 0.25 },
      { name: 'running rows left', value: left.runningCount, relation: '=', limit: 0 },
      { name: 'waiting sequences left', value: left.waitingCount, relation: '=', limit: 0 },
      { name: 'jobs left in Redis', value: left.jobCount, relation: '=', limit: 0 },
      { name: 'new keys without expiry', value: newKeys.length, relation: '=', limit: 0 },
      { name: 'resident memory at the end over that after warm-up', value: growth, relation: '<=', limit: MEMORY_GROWTH_BAR },
    ],
  };
}

interface RequestPlan {
  content: string;
  maxTokens: number;
  /** The client leaves while nothing has come yet, or in the middle of the text; `place` in 0 to 1 says how far. */
  cut: { early: boolean; place: number } | undefined;
}

async function oneRequest(stack: Stack, { content, maxTokens, cut }: RequestPlan): Promise<StreamOutcome> {
  const leaving = new AbortController();
  const timer = cut?.early ? setTimeout(() => leaving.abort(), cut.place * EARLY_CUT_MS) : undefined;
  // Strictly before the last chunk, or there would be nothing to cut.
  const lastChunk = cut && !cut.early ? 1 + Math.floor(cut.place * (maxTokens - 2)) : Number.POSITIVE_INFINITY;
  try {
    return await streamChat(stack.target, {
      body: { model: 'default', messages: [{ role: 'user', content }], max_tokens: maxTokens, ignore_eos: true, temperature: 0 },
      signal: leaving.signal,
      onChunk: chunkCount => {
        if (chunkCount >= lastChunk) leaving.abort();
      },
    });
  } finally {
    clearTimeout(timer);
  }
}

/** Runs `count` tasks, `width` at a time; results in the order of the tasks. */
async function inTurn<T>(count: number, width: number, task: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = new Array(count);
  let next = 0;
  const client = async () => {
    for (let index = next++; index < count; index = next++) results[index] = await task(index);
  };
  await Promise.all(Array.from({ length: Math.min(width, count) }, client));
  return results;
}
