/**
 * Bench `step-cost`: what a decode step of the batcher costs beside the engine's own run: sampling, scheduling, text and events. The real loop decodes
 * full batches with mixed sampling, its events going to a real Redis; each of its steps is compared with the same engine run alone, a moment later.
 */

import { engineOptions } from '../batcher/model/engine-options.ts';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { runLoops } from './loop-runs.ts';
import type { LoopTimes, SamplingMix } from './loop-workload.ts';
import { type BenchModel, benchModel } from './model.ts';
import type { Bar, Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { percentile } from './spread.ts';

/** Of a step at this batch, outside onnxruntime. */
const OVERHEAD_BAR_MS = 1;
const OVERHEAD_BATCH = 8;
/** Sampling's share of a step at this batch. */
const SAMPLING_BAR = 0.1;
const SAMPLING_BATCH = 32;
/** Blocks of the KV store: enough for every row at any length that is asked for here. */
const STORE_BLOCKS = 8192;

const SETTINGS = {
  ...commonSettings,
  batches: { kind: 'counts', default: [OVERHEAD_BATCH, SAMPLING_BATCH], min: 1, max: 256, help: 'sequences decoded together' },
  steps: { kind: 'count', default: 200, min: 10, max: 4096, help: 'steps of each batch that count' },
  'prompt-words': { kind: 'count', default: 40, min: 1, max: 1000, help: 'words of a prompt' },
} as const satisfies SettingSpecs;

export const stepCostBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    return findings(model, await measure(run, model));
  },
});

type StepCostRun = BenchRun<typeof SETTINGS>;

const MIXES: readonly SamplingMix[] = ['greedy', 'mixed'];

interface Row {
  batch: number;
  sampling: SamplingMix;
  stepMs: number;
  engineMs: number;
  /** Of the steps' own differences. */
  overhead: { p50: number; p90: number };
  /** Between two runs of the engine: plan, sampling and commit, which nothing hides. */
  outside: { p50: number; p99: number };
  outsideShare: number;
}

async function measure({ settings, progress, children }: StepCostRun, model: BenchModel): Promise<Row[]> {
  const kinds = settings.batches.flatMap(batch => MIXES.map(sampling => ({ batch, sampling })));
  const runs = kinds.map(({ batch, sampling }) => ({
    name: `batch ${batch}, ${sampling}: ${settings.steps} steps`,
    plan: {
      modelDirectory: model.directory,
      engine: { ...engineOptions(model, { threads: settings.threads, rowCount: batch }), storeBlocks: STORE_BLOCKS },
      batch,
      sampling,
      promptWords: settings['prompt-words'],
      stepCount: settings.steps,
    },
  }));
  const times = await runLoops(runs, { progress, children });
  return kinds.map((kind, index) => rowOf(kind, times[index]!));
}

export function rowOf(of: Pick<Row, 'batch' | 'sampling'>, times: LoopTimes): Row {
  const differences = times.step.map((step, index) => step - times.engine[index]!);
  return {
    ...of,
    stepMs: percentile(times.step, 50),
    engineMs: percentile(times.engine, 50),
    overhead: { p50: percentile(differences, 50), p90: percentile(differences, 90) },
    outside: { p50: percentile(times.outside, 50), p99: percentile(times.outside, 99) },
    outsideShare: percentile(
      times.step.map((step, index) => times.outside[index]! / step),
      50,
    ),
  };
}

function findings(model: BenchModel, rows: readonly Row[]): Findings {
  const ms = (value: number) => value.toFixed(2);
  return {
    title: `A decode step of the batcher's loop beside the same engine run alone, on ${model.name}`,
    versions: model.versions,
    tables: [
      {
        title: 'Milliseconds of a step',
        columns: [
          'batch',
          'sampling',
          'step p50',
          'engine alone p50',
          'difference p50',
          'p90',
          'between runs p50',
          'p99',
          'share of the step',
        ],
        rows: rows.map(row => [
          String(row.batch),
          row.sampling,
          ms(row.stepMs),
          ms(row.engineMs),
          ms(row.overhead.p50),
          ms(row.overhead.p90),
          ms(row.outside.p50),
          ms(row.outside.p99),
          `${(row.outsideShare * 100).toFixed(1)} %`,
        ]),
      },
    ],
    figures: { unit: 'ms', rows },
    bars: rows.flatMap(({ batch, sampling, outside, outsideShare }): Bar[] => [
      ...(batch === OVERHEAD_BATCH
        ? [
            {
              name: `ms of a step at batch ${batch}, ${sampling}, between two engine runs`,
              value: outside.p50,
              relation: '<' as const,
              limit: OVERHEAD_BAR_MS,
            },
          ]
        : []),
      ...(batch === SAMPLING_BATCH
        ? [
            {
              name: `sampling, plan and commit as a share of a step at batch ${batch}, ${sampling}`,
              value: outsideShare,
              relation: '<' as const,
              limit: SAMPLING_BAR,
            },
          ]
        : []),
    ]),
    notes: [
      'difference: the step as a whole less the same run of the engine, with nothing beside it, right after; so what the loop does while the engine runs counts as far as it holds the engine up, which it does where there is no core besides the threads of the engine',
      'between runs: plan, sampling and commit, as the metric sluice_step_overhead_seconds has it; mixed is a quarter of the rows each greedy, top_p, top_k, and top_p with penalties',
    ],
  };
}
