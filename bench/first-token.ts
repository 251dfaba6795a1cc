/**
 * Bench `first-token`: what lies between a client and its first token besides the prefill: one client asks one request after another, none of which
 * finds its prompt in the prefix cache. The prefill is what the batcher took for that request; the engine alone, given the same prompts in the
 * same repetition, says that it is no slower there.
 */

import { engineOptions } from '../batcher/model/engine-options.ts';
import { type BenchRun, bench } from './bench.ts';
import { burst, faultsOf } from './burst.ts';
import { commonSettings } from './common-settings.ts';
import type { WorkloadPlan, WorkloadTimes } from './engine-workload.ts';
import type { StreamOutcome } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { PromptMaker } from './prompt-maker.ts';
import type { Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { percentile, spreadOf, spreadText } from './spread.ts';
import { startStack } from './stack.ts';

const OVERHEAD_BAR_MS = 10;
const WARM_UP_COUNT = 10;
/** A second one tells that the stream goes on. */
const MAX_TOKENS = 2;

const SETTINGS = {
  ...commonSettings,
  repetitions: { kind: 'count', default: 3, min: 1, max: 100, help: 'times that each side is measured' },
  requests: { kind: 'count', default: 40, min: 1, max: 10_000, help: 'requests of a repetition, one after the other' },
  'prompt-tokens': { kind: 'count', default: 128, min: 32, max: 4096, help: 'tokens of each prompt' },
} as const satisfies SettingSpecs;

export const firstTokenBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    return findings(model, await measure(run, model));
  },
});

type FirstTokenRun = BenchRun<typeof SETTINGS>;

interface Repetition {
  /** One entry a request, ms. */
  ttfts: number[];
  prefills: number[];
  /** Of the engine alone, ms a prompt. */
  alone: number;
  uncachedTokens: number[];
}

interface Measured {
  repetitions: Repetition[];
  faults: string[];
}

async function measure({ settings, progress, children }: FirstTokenRun, model: BenchModel): Promise<Measured> {
  const { requests: requestCount, threads } = settings;
  const measured: Measured = { repetitions: [], faults: [] };
  const prompts = await PromptMaker.open(model);
  const stack = await startStack({ model, threads, progress, children });
  const program = new URL('./engine-workload.ts', import.meta.url).pathname;
  let promptCount = 0;
  const ask = async (): Promise<StreamOutcome> => {
    const content = prompts.content(promptCount++, settings['prompt-tokens']);
    return (await burst(stack.target, 1, { content: () => content, maxTokens: MAX_TOKENS }))[0]!;
  };
  try {
    for (let i = 0; i < WARM_UP_COUNT; i++) await ask();
    for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
      progress(`repetition ${repetition} of ${settings.repetitions}: ${requestCount} requests`);
      const good: StreamOutcome[] = [];
      for (let i = 0; i < requestCount; i++) {
        const outcome = await ask();
        const faults = faultsOf(outcome, MAX_TOKENS);
        measured.faults.push(...faults);
        if (faults.length === 0) good.push(outcome);
      }
      if (good.length === 0) throw new Error(`no stream ended well: ${measured.faults[0]}`);
      progress(`repetition ${repetition} of ${settings.repetitions}: the engine alone`);
      const plan: WorkloadPlan = {
        engine: engineOptions(model, { threads, rowCount: good.length }),
        requests: good.map(({ usage }) => ({ promptTokens: usage!.promptTokens, cachedTokens: usage!.cachedTokens })),
        completionTokens: 1,
      };
      const times = JSON.parse((await children.run(process.execPath, [program, JSON.stringify(plan)])).stdout) as WorkloadTimes;
      measured.repetitions.push({
        ttfts: good.map(outcome => outcome.chunkTimes[0]! - outcome.startedAt),
        prefills: good.map(outcome => outcome.timings!.prefillMs),
        alone: times.prefillMs / good.length,
        uncachedTokens: good.map(({ usage }) => usage!.promptTokens - usage!.cachedTokens),
      });
    }
  } finally {
    await stack.close();
  }
  return measured;
}

function findings(model: BenchModel, { repetitions, faults }: Measured): Findings {
  const over = (figure: (repetition: Repetition) => number) => spreadOf(repetitions.map(figure));
  const figures = {
    ttftMsP50: over(({ ttfts }) => percentile(ttfts, 50)),
    prefillMsP50: over(({ prefills }) => percentile(prefills, 50)),
    engineAloneMs: over(({ alone }) => alone),
    overheadMsP50: over(({ ttfts, prefills }) =>
      percentile(
        ttfts.map((ttft, i) => ttft - prefills[i]!),
        50,
      ),
    ),
    overheadMsP99: over(({ ttfts, prefills }) =>
      percentile(
        ttfts.map((ttft, i) => ttft - prefills[i]!),
        99,
      ),
    ),
    overEngineMs: over(({ ttfts, alone }) => percentile(ttfts, 50) - alone),
    uncachedTokens: over(({ uncachedTokens }) => percentile(uncachedTokens, 50)),
  };
  return {
    title: `The first token at one client, on ${model.name}; median (minimum-maximum) of ${repetitions.length} repetitions`,
    versions: model.versions,
    tables: [
      {
        title: 'ms',
        columns: ['', 'value'],
        rows: [
          ['time to first token at the client, p50', spreadText(figures.ttftMsP50)],
          ['its prefill in the batcher, p50', spreadText(figures.prefillMsP50)],
          ['prefill of such a prompt by the engine alone', spreadText(figures.engineAloneMs)],
          ['all that is not prefill, p50', spreadText(figures.overheadMsP50)],
          ['all that is not prefill, p99', spreadText(figures.overheadMsP99)],
          ['time to first token beyond the engine alone, p50', spreadText(figures.overEngineMs)],
        ],
      },
    ],
    figures: { ...figures, faultCount: faults.length },
    bars: [
      { name: 'faults of streams', value: faults.length, relation: '=', limit: 0 },
      {
        name: 'ms to the first token that are not prefill, p50',
        value: figures.overheadMsP50.median,
        relation: '<=',
        limit: OVERHEAD_BAR_MS,
      },
      {
        name: 'ms to the first token beyond the prefill of the engine alone',
        value: figures.overEngineMs.median,
        relation: '<=',
        limit: OVERHEAD_BAR_MS,
      },
    ],
    notes: [`uncached tokens of a prompt, p50: ${spreadText(figures.uncachedTokens, 0)}`],
  };
}
