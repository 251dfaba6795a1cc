/**
 * Bench `replay`: requests with the lengths, times and shared prefixes of a real trace, at a wanted rate, in an open loop, through the whole product;
 * how many of them came as two latency objectives promise.
 */
import { type GoodputFigures, GoodputTally, type Percentiles } from '../planner/goodput.ts';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { type BenchModel, benchModel } from './model.ts';
import type { OpenLoopRecord } from './open-loop.ts';
import { type ReplayLoad, replayLoad } from './replay-load.ts';
import { replay, warmUp } from './replay-run.ts';
import type { Findings } from './report.ts';
import { durationText, type SettingSpecs } from './settings.ts';
import { startStack } from './stack.ts';
import { traceSettings } from './trace-settings.ts';

const MINUTES = 60_000;

export const REPLAY_SETTINGS = {
  ...commonSettings,
  ...traceSettings,
  rate: { kind: 'number', default: 1, min: 0.001, max: 100_000, help: 'requests a second, whatever becomes of them' },
  duration: { kind: 'duration', default: 60_000, min: 1_000, max: 24 * 60 * MINUTES, help: 'how long requests come' },
  'max-wait': { kind: 'duration', default: 0, min: 0, max: 60 * MINUTES, help: 'x-sluice-max-wait-ms of every request; 0 sends none' },
  'clients-bound': {
    kind: 'count',
    default: 0,
    min: 0,
    max: 100_000,
    help: 'most requests open at once, more are not sent; 0 is no bound',
  },
  drain: {
    kind: 'duration',
    default: 60_000,
    min: 0,
    max: 60 * MINUTES,
    help: 'what is open so long after the last arrival is unfinished',
  },
  'max-running': { kind: 'count', default: 32, min: 1, max: 1024, help: 'sequences that the batcher computes at once' },
  'itl-slo': {
    kind: 'duration',
    default: 150,
    min: 10,
    max: MINUTES,
    help: "the batcher's bound on the time between two tokens beside a prefill",
  },
  seed: { kind: 'count', default: 1, min: 0, max: 2 ** 31 - 1, help: 'of the arrivals' },
} as const satisfies SettingSpecs;

export const replayBench = bench({
  settings: REPLAY_SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    const load = await replayLoad(run.settings, model);
    const record = await measure(run, { model, load });
    return findings(run.settings, { model, load, record });
  },
});

type ReplayRun = BenchRun<typeof REPLAY_SETTINGS>;

interface Replayed {
  model: BenchModel;
  load: ReplayLoad;
  record: OpenLoopRecord;
}

async function measure(run: ReplayRun, { model, load }: Omit<Replayed, 'record'>): Promise<OpenLoopRecord> {
  const { settings, progress, children } = run;
  const stack = await startStack({
    model,
    threads: settings.threads,
    batcherArguments: ['--max-running', String(settings['max-running']), '--itl-slo', String(settings['itl-slo'])],
    progress,
    children,
  });
  try {
    await warmUp(stack);
    progress(`${load.requests.length} requests at ${settings.rate}/s`);
    const headers = settings['max-wait'] > 0 ? { 'x-sluice-max-wait-ms': String(settings['max-wait']) } : undefined;
    return await replay(stack, load.requests, {
      clientsBound: settings['clients-bound'],
      drainMs: settings.drain,
      progress,
      ...(headers && { headers }),
    });
  } finally {
    await stack.close();
  }
}

function findings(settings: ReplayRun['settings'], { model, load, record }: Replayed): Findings {
  const objectives = { ttftMs: settings['ttft-slo'], tpotMs: settings['tpot-slo'] };
  const tally = new GoodputTally(objectives);
  for (const request of record.requests) tally.add(request);
  tally.gaps.merge(record.gaps.data());
  const figures = tally.figures(settings.duration);
  const cachedShare = figures.promptTokens === 0 ? 0 : figures.cachedTokens / figures.promptTokens;
  const lateP99 = record.latenessMs.percentile(99) ?? 0;
  return {
    title: `Replay of ${settings.trace} at ${settings.rate} requests/s for ${durationText(settings.duration)}, lengths times ${load.factor.toPrecision(3)}, on ${model.name}`,
    versions: model.versions,
    tables: [
      latencyTable(figures),
      {
        title: `Goodput: TTFT within ${durationText(objectives.ttftMs)} and ${durationText(objectives.tpotMs)} per output token`,
        columns: ['', 'value'],
        rows: goodputRows(figures),
      },
      {
        title: 'Prefix cache: share of prompt tokens',
        columns: ['', 'value'],
        rows: [
          ['found (cached_tokens)', cachedShare.toFixed(3)],
          ['ideal for these prompts, in whole KV blocks', load.idealShare.blocks.toFixed(3)],
          ["ideal by the trace's own prefix identity", load.idealShare.trace.toFixed(3)],
        ],
      },
    ],
    figures: { ...figures, cachedShare, idealShare: load.idealShare, factor: load.factor, sendLatenessMsP99: lateP99 },
    bars: [{ name: 'requests broken', value: figures.counts.broken, relation: '=', limit: 0 }],
    notes: [
      ...load.notes,
      `the load client sent 99 % of the requests within ${lateP99.toFixed(1)} ms of their time`,
      ...[...new Set(record.faults)].slice(0, 5).map(fault => `broken: ${fault.slice(0, 200)}`),
    ],
  };
}

function latencyTable(figures: GoodputFigures): Findings['tables'][number] {
  const row = (name: string, ms: Percentiles | undefined) => [name, ...[ms?.p50, ms?.p90, ms?.p99].map(value => value?.toFixed(0) ?? '-')];
  return {
    title: 'Latency of whole answers, ms, as the client sees it',
    columns: ['', 'p50', 'p90', 'p99'],
    rows: [
      row('time to first token', figures.ttftMs),
      row('between two tokens', figures.interTokenMs),
      row('per output token, mean of a request', figures.tpotMs),
      row('end to end', figures.e2eMs),
    ],
  };
}

function goodputRows(figures: GoodputFigures): string[][] {
  return [
    ['requests offered a second', figures.offeredRequestsPerSecond.toFixed(2)],
    ['goodput, requests a second', figures.goodputRequestsPerSecond.toFixed(2)],
    ['goodput, aggregate tokens/s', figures.goodputAggregateTokensPerSecond.toFixed(1)],
    ['share that came as promised', figures.attainment.toFixed(3)],
    ['rejection rate', figures.rejectionRate.toFixed(3)],
    ['aggregate tokens/s of whole answers', figures.aggregateTokensPerSecond.toFixed(1)],
    ['per-request tokens/s, median', figures.perRequestTokensPerSecondP50?.toFixed(1) ?? '-'],
    [Object.keys(figures.counts).join(' / '), Object.values(figures.counts).join(' / ')],
  ];
}
