/**
 * Bench `batching`: continuous against static batching on the same engine, with the lengths of a real trace: once with all requests there from the start,
 * for the throughput, and once as they come at a rate, for the latency. Static batches are of two kinds: of rows that are padded to the longest answer, with
 * which the field compares, and of rows that cost nothing once they have ended.
 */

import { engineOptions } from '../batcher/model/engine-options.ts';
import { arrivals } from '../planner/arrivals.ts';
import { type GoodputFigures, GoodputTally } from '../planner/goodput.ts';
import { TRACE_NAMES } from '../planner/trace-file.ts';
import type { ScaledTrace } from '../planner/trace-scaling.ts';
import { BATCHING_KINDS, type BatchedRequest, type BatchingKind, type BatchingOutcome, type BatchingTask } from './batching-run.ts';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { benchModel } from './model.ts';
import type { Findings, Table } from './report.ts';
import { scaledTrace } from './scaled-trace.ts';
import type { SettingSpecs } from './settings.ts';
import { type Spread, spreadOf, spreadText } from './spread.ts';

const MINUTE = 60_000;
const STATIC_KINDS = ['static', 'padded'] as const satisfies readonly BatchingKind[];
/** The rate of the second load, of what continuous batching did of the first. */
const LOAD_SHARE = 0.7;
const LEAST_PROMPT_TOKENS = 16;
/** All requests count; goodput is not what this bench is about. */
const NO_OBJECTIVES = { ttftMs: Number.POSITIVE_INFINITY, tpotMs: Number.POSITIVE_INFINITY };
/** By which continuous batching must be ahead. */
const LEAST_GAIN = 1;
const LEAST_PADDED_GAIN = 1.1;
const MOST_WAIT = 0.9;

const SETTINGS = {
  ...commonSettings,
  trace: { kind: 'text', default: 'azure-conversation', help: `${TRACE_NAMES.join(', ')}, or a file in the form of one of them` },
  traces: { kind: 'text', default: '', help: 'folder of the named traces' },
  scale: { kind: 'number', default: 15, min: 0, max: 100, help: "percent of the trace's lengths; 0 for as much as the context takes" },
  requests: { kind: 'count', default: 96, min: 2, max: 100_000, help: 'of each run' },
  repetitions: { kind: 'count', default: 1, min: 1, max: 100, help: 'times that each side serves each load' },
  'max-running': { kind: 'count', default: 16, min: 2, max: 1024, help: 'rows; the size of a static batch' },
  'max-batched-tokens': { kind: 'count', default: 512, min: 16, max: 1 << 20, help: 'tokens of one step' },
  'itl-slo': { kind: 'duration', default: 150, min: 10, max: MINUTE, help: 'bound on the time between two tokens beside a prefill' },
  seed: { kind: 'count', default: 1, min: 0, max: 2 ** 31 - 1, help: 'of the order and the arrivals' },
} as const satisfies SettingSpecs;

type Batching = BenchRun<typeof SETTINGS>;

interface Side {
  figures: GoodputFigures;
  /** Until the last token. */
  windowMs: number;
  /** Rows of a decode step. */
  meanBatch: number;
}

interface Load {
  name: string;
  /** One entry a repetition in each. */
  sides: Record<BatchingKind, Side[]>;
}

export const batchingBench = bench({
  settings: SETTINGS,
  async run(run) {
    const { settings, progress } = run;
    const model = await benchModel(settings, progress);
    const { contextTokens } = model.manifest.shape;
    const { trace, notes } = await scaledTrace(settings, { contextTokens, leastPromptTokens: LEAST_PROMPT_TOKENS });
    const engine = engineOptions(model, { threads: settings.threads, rowCount: settings['max-running'] });
    const serve = (name: string, requests: readonly BatchedRequest[]) => serveLoad(run, { name, engine, requests });
    const atOnce = await serve(
      'all requests at once',
      requestsOf(trace, settings).map(request => ({ ...request, atMs: 0 })),
    );
    const served = spreadOf(atOnce.sides.continuous.map(({ windowMs }) => (settings.requests * 1000) / windowMs)).median;
    const rate = served * LOAD_SHARE;
    const coming = await serve(`${rate.toFixed(2)} requests a second, as they come`, requestsOf(trace, settings, rate));
    return findings(settings, { model: model.name, versions: model.versions, notes, trace, loads: [atOnce, coming] });
  },
});

type Settings = Batching['settings'];

/** The same on both sides and in each repetition. */
function requestsOf(trace: ScaledTrace, { requests: count, seed }: Settings, rate = 1): BatchedRequest[] {
  return arrivals(trace, { kind: 'poisson', rate, count, seed }).map(({ atMs, promptTokens, completionTokens }) => ({
    ...{ atMs, promptTokens, completionTokens },
  }));
}

async function serveLoad(
  { settings, progress, children }: Batching,
  { name, engine, requests }: { name: string; engine: BatchingTask['engine']; requests: readonly BatchedRequest[] },
): Promise<Load> {
  const load: Load = { name, sides: { continuous: [], static: [], padded: [] } };
  for (let repetition = 1; repetition <= settings.repetitions; repetition++) {
    progress(`${name}: repetition ${repetition} of ${settings.repetitions}`);
    // In turn first, so that neither always has the cooler machine.
    const kinds = repetition % 2 === 1 ? BATCHING_KINDS : BATCHING_KINDS.toReversed();
    const task: BatchingTask = {
      ...{ engine, requests, kinds, maxBatchedTokens: settings['max-batched-tokens'], itlSloMs: settings['itl-slo'] },
    };
    const program = new URL('./batching-run.ts', import.meta.url).pathname;
    const { stdout } = await children.run(process.execPath, [program, JSON.stringify(task)]);
    for (const outcome of JSON.parse(stdout) as BatchingOutcome[]) load.sides[outcome.kind].push(sideOf(outcome));
  }
  return load;
}

function sideOf({ served, rowSteps, stepCount }: BatchingOutcome): Side {
  const tally = new GoodputTally(NO_OBJECTIVES);
  for (const request of served) tally.add(request);
  const windowMs = Math.max(...served.map(request => request.lastTokenAt!));
  return { figures: tally.figures(windowMs), windowMs, meanBatch: rowSteps / stepCount };
}

interface Outcome {
  model: string;
  versions: Record<string, string>;
  notes: string[];
  trace: ScaledTrace;
  loads: readonly Load[];
}

function findings(settings: Settings, { model, versions, notes, trace, loads }: Outcome): Findings {
  const [atOnce, coming] = loads;
  const gainOver = (kind: (typeof STATIC_KINDS)[number]) => ratio(atOnce!, kind, side => side.figures.aggregateTokensPerSecond);
  const gain = { static: gainOver('static'), padded: gainOver('padded') };
  const wait = ratio(coming!, 'padded', side => side.figures.ttftMs!.p50);
  return {
    title: `Continuous against static batching on ${model}: ${settings.requests} requests of ${settings.trace}, lengths times ${trace.factor.toPrecision(3)}, ${settings['max-running']} rows`,
    versions,
    tables: loads.map(loadTable),
    figures: { loads, gain, wait },
    bars: [
      { name: 'tokens/s of continuous over static batching', value: gain.static.median, relation: '>=', limit: LEAST_GAIN },
      {
        name: 'tokens/s of continuous batching over padded static batches',
        value: gain.padded.median,
        relation: '>=',
        limit: LEAST_PADDED_GAIN,
      },
      { name: 'p50 of the time to first token over that of padded static batches', value: wait.median, relation: '<=', limit: MOST_WAIT },
    ],
    notes,
  };
}

function loadTable(load: Load): Table {
  const row = (name: string, digits: number, of: (side: Side) => number) => [
    name,
    spreadText(spreadOf(load.sides.continuous.map(of)), digits),
    ...STATIC_KINDS.flatMap(kind => [spreadText(spreadOf(load.sides[kind].map(of)), digits), spreadText(ratio(load, kind, of), 2)]),
  ];
  return {
    title: load.name,
    columns: ['', 'continuous', ...STATIC_KINDS.flatMap(kind => [kind, 'ratio'])],
    rows: [
      row('aggregate tokens/s', 1, side => side.figures.aggregateTokensPerSecond),
      row('rows in a decode step, mean', 1, side => side.meanBatch),
      row('time to first token, s: p50', 2, side => side.figures.ttftMs!.p50 / 1000),
      row('p99', 2, side => side.figures.ttftMs!.p99 / 1000),
      row('end to end, s: p50', 2, side => side.figures.e2eMs!.p50 / 1000),
      row('p99', 2, side => side.figures.e2eMs!.p99 / 1000),
      row('per output token, mean of a request, ms: p50', 0, side => side.figures.tpotMs!.p50),
      row('p99', 0, side => side.figures.tpotMs!.p99),
    ],
  };
}

/** Continuous over static, repetition by repetition. */
function ratio({ sides }: Load, kind: (typeof STATIC_KINDS)[number], of: (side: Side) => number): Spread {
  return spreadOf(sides.continuous.map((side, repetition) => of(side) / of(sides[kind][repetition]!)));
}
