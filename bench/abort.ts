/**
 * Bench `abort`: many requests through the whole path, a third of them cut by the client at a random moment: queued, in prefill, or in the
 * middle of the answer. Afterwards nothing of them may be left: no row, no job, no key without expiry, no memory.
 */
import { bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { LeftoverProbe, residentBytes } from './leftovers.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { benchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import { type Stack, startStack } from './stack.ts';
import { tokenSource } from './token-source.ts';

/** Resident memory may differ by this share between the end of the warm-up and the end: allocators round, pages come back late. */
const MEMORY_GROWTH_BAR = 1.05;
/** Of the client's patience while nothing has come yet. */
const EARLY_CUT_MS = 2_000;

export const abortBench = bench({
  settings: {
    ...commonSettings,
    requests: { kind: 'count', default: 200, min: 10, max: 1_000_000, help: 'requests, warm-up included' },
    'warm-up': { kind: 'count', default: 60, min: 1, max: 100_000, help: 'requests before memory is first read' },
    clients: { kind: 'count', default: 40, min: 1, max: 1024, help: 'requests at a time; more than the rows, so that some wait' },
    'max-tokens': { kind: 'count', default: 16, min: 2, max: 4096, help: 'tokens that each request generates' },
    seed: { kind: 'count', default: 1, min: 1, max: 0x7fffffff, help: 'of the random moments' },
  },
  async run({ settings, progress, children }) {
    if (settings.requests <= settings['warm-up']) throw new Error('--requests must be more than --warm-up');
    const model = await benchModel(settings, progress);
    const text = await readText();
    const stack = await startStack({ model, threads: settings.threads, progress, children });
    const probe = new LeftoverProbe(stack.redisUrl, model.name);
    try {
      const random = randomSource(settings.seed);
      // The same few prompts of mixed length over and over, so that what a cache may hold is held after the warm-up.
      const request = (index: number): Promise<StreamOutcome> =>
        oneRequest(stack, {
          content: passage(text, index % 20, 5 + 15 * (index % 5)),
          maxTokens: settings['max-tokens'],
          cut: index % 3 === 2 ? { early: random() < 0.5, place: random() } : undefined,
        });
      const outcomes: StreamOutcome[] = await inTurn(settings['warm-up'], settings.clients, request);
      await probe.settled();
      const lastingBefore = await probe.lastingKeys();
      const residentBefore = await residentBytes(stack.batcherPid());
      const residentSamples: number[] = [];
      progress(`${settings['warm-up']} requests of warm-up done; resident ${mib(residentBefore)} MiB`);
      const sampling = setInterval(
        () =>
          void residentBytes(stack.batcherPid()).then(
            bytes => residentSamples.push(bytes),
            () => undefined,
          ),
        500,
      );
      try {
        const rest = settings.requests - settings['warm-up'];
        outcomes.push(...(await inTurn(rest, settings.clients, index => request(index + settings['warm-up']))));
      } finally {
        clearInterval(sampling);
      }
      const left = await probe.settled();
      const lastingAfter = await probe.lastingKeys();
      const newKeys = [...lastingAfter].filter(key => !lastingBefore.has(key));
      const residentAfter = await residentBytes(stack.batcherPid());
      const faults = outcomes.flatMap(outcome => outcome.faults);
      const cutCount = outcomes.filter(outcome => outcome.isCut).length;
      const cutWithText = outcomes.filter(outcome => outcome.isCut && outcome.chunkTimes.length > 0).length;
      for (const fault of new Set(faults)) progress(`fault: ${fault}`);
      for (const key of newKeys) progress(`key without expiry: ${key}`);
      const growth = residentAfter / residentBefore;
      return {
        title: `${settings.requests} requests, ${cutCount} cut by the client, through the whole path on ${model.name}`,
        versions: model.versions,
        tables: [
          {
            title: 'After the last request',
            columns: ['', 'value'],
            rows: [
              ['ended whole', String(outcomes.length - cutCount)],
              ['cut before the first text', String(cutCount - cutWithText)],
              ['cut within the text', String(cutWithText)],
              ['faults of streams that were not cut', String(faults.length)],
              ['running rows', String(left.runningCount)],
              ['sequences waiting in the batcher', String(left.waitingCount)],
              ['jobs in Redis', String(left.jobCount)],
              ['new keys without expiry', String(newKeys.length)],
              ['resident MiB after warm-up', mib(residentBefore)],
              ['resident MiB at most meanwhile', mib(Math.max(residentBefore, ...residentSamples))],
              ['resident MiB at the end', mib(residentAfter)],
            ],
          },
        ],
        figures: {
          requestCount: outcomes.length,
          cutCount,
          cutWithinTextCount: cutWithText,
          faultCount: faults.length,
          ...left,
          newLastingKeyCount: newKeys.length,
          residentBytes: { afterWarmUp: residentBefore, atEnd: residentAfter, growth },
        },
        bars: [
          { name: 'faults of streams that were not cut', value: faults.length, relation: '=', limit: 0 },
          { name: 'share of requests cut', value: cutCount / outcomes.length, relation: '>=', limit: 0.25 },
          { name: 'running rows left', value: left.runningCount, relation: '=', limit: 0 },
          { name: 'waiting sequences left', value: left.waitingCount, relation: '=', limit: 0 },
          { name: 'jobs left in Redis', value: left.jobCount, relation: '=', limit: 0 },
          { name: 'new keys without expiry', value: newKeys.length, relation: '=', limit: 0 },
          { name: 'resident memory at the end over that after warm-up', value: growth, relation: '<=', limit: MEMORY_GROWTH_BAR },
        ],
      };
    } finally {
      await probe.close();
      await stack.close();
    }
  },
});

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

function randomSource(seed: number): () => number {
  const next = tokenSource(1 << 24, seed);
  return () => next() / (1 << 24);
}

function mib(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}
