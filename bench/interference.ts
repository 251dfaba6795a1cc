/**
 * Bench `interference`: what the prefill of a long prompt does to a stream that is running: the longest time between two of its tokens, as its
 * client sees it through the whole path, for prompts of several lengths; and what the bound costs the prompt, whose prefill is measured alone too.
 * The longest of many gaps is longer than that of few, by chance alone; so of shorter prompts there are as many as make the tokens of the longest.
 */
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { PromptMaker } from './prompt-maker.ts';
import type { Findings } from './report.ts';
import { type SettingSpecs, UsageError } from './settings.ts';
import { percentile, type Spread, spreadOf, spreadText } from './spread.ts';
import { type Stack, startStack } from './stack.ts';

/** Of the configured bound. */
const GAP_BAR = 1.5;
/** Longest gap beside the longest prompt over that beside the shortest: 1 but for what the machine adds by chance. */
const GROWTH_BAR = 1.15;
/** Chunks of the running stream before the prompt comes, and after it has gone, so that its plain pace is known. */
const PACE_CHUNKS = 16;
const STREAM_PROMPT_TOKENS = 64;

const SETTINGS = {
  ...commonSettings,
  repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each prompt length is measured' },
  prompts: { kind: 'counts', default: [1000, 2000, 4000], min: 64, max: 1 << 20, help: 'tokens of the prompts beside the running stream' },
  'itl-slo': { kind: 'count', default: 150, min: 10, max: 60_000, help: "the batcher's bound, ms" },
} as const satisfies SettingSpecs;

export const interferenceBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    const { contextTokens } = model.manifest.shape;
    if (Math.max(...run.settings.prompts) >= contextTokens)
      throw new UsageError(`--prompts must be below the model's ${contextTokens} tokens`);
    return findings(model, run.settings, await measure(run, model));
  },
});

type InterferenceRun = BenchRun<typeof SETTINGS>;

/** One prompt alone, and as many of the same length beside a running stream as make the tokens of the longest. */
interface Sample {
  promptTokens: number;
  /** Of the running stream: while the prompt was being computed, and without it. */
  worstGapMs: number;
  medianGapMs: number;
  plainGapMs: number;
  worstPlainGapMs: number;
  prefillTokensPerSecond: { alone: number; beside: number };
}

interface Measured {
  samples: Sample[];
  faults: string[];
}

async function measure({ settings, progress, children }: InterferenceRun, model: BenchModel): Promise<Measured> {
  const prompts = await PromptMaker.open(model);
  const stack = await startStack({
    model,
    threads: settings.threads,
    batcherArguments: ['--itl-slo', String(settings['itl-slo'])],
    progress,
    children,
  });
  const measured: Measured = { samples: [], faults: [] };
  let nextIndex = 0;
  const content = (tokens: number) => prompts.content(nextIndex++, tokens);
  try {
    // The first runs of a process plan their memory.
    await streamChat(stack.target, { body: prefillBody(content(Math.min(...settings.prompts))) });
    for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
      for (const promptTokens of settings.prompts) {
        progress(`repetition ${repetition} of ${settings.repetitions}: ${promptTokens} tokens`);
        const alone = await streamChat(stack.target, { body: prefillBody(content(promptTokens)) });
        const faults = [...alone.faults];
        const runs: Beside[] = [];
        for (let tokens = 0; tokens < Math.max(...settings.prompts); tokens += promptTokens) {
          const stream = content(STREAM_PROMPT_TOKENS);
          const beside = await prefillBeside(stack, { stream, prompt: content(promptTokens) });
          faults.push(...beside.stream.faults, ...beside.prompt.faults);
          if (!beside.stream.isCut) faults.push('the running stream ended before the prompt was computed');
          runs.push(beside);
        }
        for (const fault of faults) progress(`fault: ${fault}`);
        measured.faults.push(...faults);
        if (faults.length === 0) measured.samples.push(sampleOf(alone, runs));
      }
    }
  } finally {
    await stack.close();
  }
  return measured;
}

interface Beside {
  stream: StreamOutcome;
  prompt: StreamOutcome;
}

/** Starts the stream, waits for its pace, sends the prompt, waits for the stream's pace again, and cuts it. */
async function prefillBeside(stack: Stack, contents: { stream: string; prompt: string }): Promise<Beside> {
  const leaving = new AbortController();
  let chunks = 0;
  let awaited = { chunkCount: PACE_CHUNKS, reached: Promise.withResolvers<void>() };
  const running = streamChat(stack.target, {
    // Unbounded, so that it outlasts the prompt on any machine.
    body: { model: 'default', messages: [{ role: 'user', content: contents.stream }], ignore_eos: true, temperature: 0 },
    signal: leaving.signal,
    onChunk: chunkCount => {
      chunks = chunkCount;
      if (chunks >= awaited.chunkCount) awaited.reached.resolve();
    },
  });
  const ended = running.then(() => undefined);
  await Promise.race([awaited.reached.promise, ended]);
  const prompt = await streamChat(stack.target, { body: prefillBody(contents.prompt) });
  awaited = { chunkCount: chunks + PACE_CHUNKS, reached: Promise.withResolvers<void>() };
  await Promise.race([awaited.reached.promise, ended]);
  leaving.abort();
  return { stream: await running, prompt };
}

function sampleOf(alone: StreamOutcome, runs: readonly Beside[]): Sample {
  const gaps = runs.map(({ stream, prompt }) =>
    gapsAround(stream.chunkTimes, { from: prompt.startedAt, to: prompt.chunkTimes[0] ?? prompt.endedAt }),
  );
  const during = gaps.flatMap(gap => gap.during);
  const plain = gaps.flatMap(gap => gap.plain);
  const rate = (outcome: StreamOutcome) =>
    (outcome.usage!.promptTokens - outcome.usage!.cachedTokens) / (outcome.timings!.prefillMs / 1000);
  return {
    promptTokens: alone.usage!.promptTokens,
    worstGapMs: Math.max(...during),
    medianGapMs: percentile(during, 50),
    plainGapMs: percentile(plain, 50),
    worstPlainGapMs: Math.max(...plain),
    prefillTokensPerSecond: {
      alone: rate(alone),
      beside: percentile(
        runs.map(({ prompt }) => rate(prompt)),
        50,
      ),
    },
  };
}

/** Times between chunks that overlap the span, and those that do not. */
export function gapsAround(times: readonly number[], span: { from: number; to: number }): { during: number[]; plain: number[] } {
  const gaps = { during: [] as number[], plain: [] as number[] };
  for (let index = 1; index < times.length; index++) {
    const [from, to] = [times[index - 1]!, times[index]!];
    (to > span.from && from < span.to ? gaps.during : gaps.plain).push(to - from);
  }
  return gaps;
}

interface Row extends Record<Exclude<keyof Sample, 'prefillTokensPerSecond' | 'promptTokens'>, Spread> {
  promptTokens: number;
  alone: Spread;
  beside: Spread;
}

function findings(model: BenchModel, settings: InterferenceRun['settings'], { samples, faults }: Measured): Findings {
  // A prompt has about as many tokens as asked for, so samples are told apart by the nearest length.
  const nearest = (tokens: number) =>
    settings.prompts.reduce((best, length) => (Math.abs(length - tokens) < Math.abs(best - tokens) ? length : best));
  const rows = settings.prompts.map((length): Row => {
    const own = samples.filter(sample => nearest(sample.promptTokens) === length);
    if (own.length === 0) throw new Error(`no prompt of ${length} tokens was measured: ${faults[0]}`);
    const over = (figure: (sample: Sample) => number) => spreadOf(own.map(figure));
    return {
      promptTokens: length,
      worstGapMs: over(sample => sample.worstGapMs),
      medianGapMs: over(sample => sample.medianGapMs),
      plainGapMs: over(sample => sample.plainGapMs),
      worstPlainGapMs: over(sample => sample.worstPlainGapMs),
      alone: over(sample => sample.prefillTokensPerSecond.alone),
      beside: over(sample => sample.prefillTokensPerSecond.beside),
    };
  });
  const byLength = rows.toSorted((a, b) => a.promptTokens - b.promptTokens);
  const [shortest, longest] = [byLength[0]!, byLength.at(-1)!];
  const growth = longest.worstGapMs.median / shortest.worstGapMs.median;
  return {
    title: `A running stream beside the prefill of long prompts on ${model.name}, bound ${settings['itl-slo']} ms; median (minimum-maximum)`,
    versions: model.versions,
    tables: [
      {
        title: 'Between two tokens of the running stream, ms',
        columns: ['prompt tokens', 'worst beside prefill', 'median beside prefill', 'worst without', 'median without'],
        rows: rows.map(row => [
          String(row.promptTokens),
          spreadText(row.worstGapMs),
          spreadText(row.medianGapMs),
          spreadText(row.worstPlainGapMs),
          spreadText(row.plainGapMs),
        ]),
      },
      {
        title: 'Prefill of the prompt, tokens/s',
        columns: ['prompt tokens', 'alone', 'beside the stream', 'share'],
        rows: rows.map(row => [
          String(row.promptTokens),
          spreadText(row.alone),
          spreadText(row.beside),
          (row.beside.median / row.alone.median).toFixed(2),
        ]),
      },
    ],
    figures: { itlSloMs: settings['itl-slo'], rows, growth, faultCount: faults.length },
    bars: [
      { name: 'faults of streams', value: faults.length, relation: '=', limit: 0 },
      {
        name: `worst gap beside ${longest.promptTokens} tokens over the bound, all repetitions`,
        value: longest.worstGapMs.max / settings['itl-slo'],
        relation: '<=',
        limit: GAP_BAR,
      },
      {
        name: `worst gap beside ${longest.promptTokens} tokens over that beside as many in prompts of ${shortest.promptTokens}`,
        value: growth,
        relation: '<=',
        limit: GROWTH_BAR,
      },
    ],
    notes: [
      'a chunk of the stream that brings no text (half a character) would count as one longer gap, so the figures are at most too large',
    ],
  };
}

function prefillBody(content: string): Record<string, unknown> {
  return { model: 'default', messages: [{ role: 'user', content }], max_tokens: 1, ignore_eos: true, temperature: 0 };
}
