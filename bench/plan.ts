/**
 * Bench `plan`: the capacity planner against reality: at rates below, at and above the knee that it tells, the same requests at the same times go through
 * its simulation and through the whole product on this host; what it predicted beside what was. A host that others share is not always as fast as when it
 * was measured: so it is predicted for the curves as they were measured, and for the host's own pace during the replay, which the batcher's log of its steps
 * tells. The bars are for the latter: they judge the planner, not the host.
 */
import { join } from 'node:path';
import type { StepRecord } from '../batcher/step-log.ts';
import { simulateFleet } from '../planner/fleet.ts';
import { type GoodputFigures, GoodputTally, type Objectives } from '../planner/goodput.ts';
import { findKnee, mostPerBatcher } from '../planner/knee.ts';
import { curvesAtPaces, type Paces, type ServiceCurves } from '../planner/service-curves.ts';
import type { SimulatedSettings } from '../planner/simulated-batcher.ts';
import { SimulatedEngine } from '../planner/simulated-engine.ts';
import type { Scenario } from '../planner/simulation.ts';
import { pacesOf } from '../planner/step-fit.ts';
import { TrialRunner } from '../planner/trial-runner.ts';
import { estimatePromptTokens } from '../shared/token-estimate.ts';
import { type BenchRun, bench } from './bench.ts';
import { wantedCurves } from './host-curves.ts';
import { type BenchModel, benchModel } from './model.ts';
import { admissionSettings, batcherArguments, gatewayBindings, planSettings, simulatedSettings, traceLimits } from './plan-settings.ts';
import { type LoadedRequest, replayLoad } from './replay-load.ts';
import { replay, warmUp } from './replay-run.ts';
import type { Bar, Findings, Table } from './report.ts';
import { scaledTrace } from './scaled-trace.ts';
import { durationText, type SettingSpecs } from './settings.ts';
import { startStack } from './stack.ts';
import { StepLogReader } from './step-log-reader.ts';
import { inTemporaryFolder } from './temporary-folder.ts';

const MINUTE = 60_000;
/** Of simulated loads while the knee is looked for. */
const KNEE_REQUESTS = 2_000;
const KNEE_THREADS = 2;
/** Of the objective for the first token, what a request may wait at the gateway. */
const WAITS_PER_TTFT = 5;
/** How far a prediction may be off. */
const MOST_OFF = 0.15;

const SETTINGS = {
  ...planSettings,
  rates: { kind: 'counts', default: [60, 100, 130], min: 1, max: 1_000, help: 'percent of the knee, each of them replayed' },
  rate: { kind: 'number', default: 0, min: 0, max: 100_000, help: 'requests a second to take for the knee; 0 has it looked for' },
  duration: { kind: 'duration', default: 2 * MINUTE, min: 1_000, max: 24 * 60 * MINUTE, help: 'how long requests come, at each rate' },
  drain: { kind: 'duration', default: MINUTE, min: 0, max: 60 * MINUTE, help: 'what is open so long after the last arrival is unfinished' },
  'max-wait': {
    ...planSettings['max-wait'],
    // A request's own prefill comes on top, and all prefill has streams beside it. By simulation this gives the most goodput at 130 and 200 % of the
    // knee, within a few percent; half of the objective gives up to a quarter less there, all of it a third less and more.
    default: { text: 'a fifth of --ttft-slo', from: others => Math.round((others['ttft-slo'] as number) / WAITS_PER_TTFT) },
  },
  drafts: { kind: 'choice', default: 'on', of: ['on', 'off'], help: 'drafts of the real batcher, which are not simulated' },
  seed: { kind: 'count', default: 1, min: 0, max: 2 ** 31 - 1, help: 'of the arrivals' },
} as const satisfies SettingSpecs;

export const planBench = bench({
  settings: SETTINGS,
  async run(run) {
    const { settings, progress } = run;
    const model = await benchModel(settings, progress);
    const curves = await wantedCurves(settings, async () => model, run);
    const knee = settings.rate > 0 ? settings.rate : await kneeRate(run, curves);
    const rounds: Round[] = [];
    for (const percent of settings.rates) rounds.push(await oneRate(run, { model, curves, percent, rate: (knee * percent) / 100 }));
    return findings(settings, { model, curves, knee, rounds });
  },
});

type PlanRun = BenchRun<typeof SETTINGS>;

interface Side {
  figures: GoodputFigures;
  /** Of the batcher: steps, and the tokens that they computed. */
  stepCount: number;
  stepTokens: number;
}

interface Round {
  percent: number;
  rate: number;
  predicted: Side;
  /** Of the host in the replay. */
  paces: Paces;
  predictedAtPace: Side;
  real: Side;
  faults: string[];
}

async function kneeRate({ settings, progress }: PlanRun, curves: ServiceCurves): Promise<number> {
  progress('looking for the knee');
  const { trace } = await scaledTrace(settings, traceLimits(curves));
  const scenario: Scenario = {
    ...{ curves, settings: simulatedSettings(settings, curves, trace), trace, arrivals: settings.arrivals },
    admission: admissionSettings(settings),
    ...{ objectives: objectivesOf(settings), requestCount: KNEE_REQUESTS, seed: settings.seed },
  };
  await using runner = new TrialRunner(scenario, KNEE_THREADS);
  const parts = { run: runner.run.bind(runner), target: settings.attainment / 100 };
  const { best } = await findKnee(parts, { mostPerBatcher: mostPerBatcher(scenario), batcherCount: 1 });
  if (best === undefined)
    throw new Error('there is no knee: even a nearly idle batcher does not keep the objectives; give --rate or wider ones');
  return best.rate;
}

async function oneRate(
  run: PlanRun,
  { model, curves, percent, rate }: { model: BenchModel; curves: ServiceCurves; percent: number; rate: number },
): Promise<Round> {
  const { settings, progress } = run;
  const load = await replayLoad({ ...settings, rate }, model);
  const { trace } = await scaledTrace(settings, traceLimits(curves));
  const simulated = { ...simulatedSettings(settings, curves, trace), hasPrefixStore: true };
  progress(`${percent} percent of the knee: ${load.requests.length} requests at ${rate.toFixed(2)}/s`);
  const { real, steps, faults } = await inTemporaryFolder(folder =>
    realSide(run, { model, requests: load.requests, stepLogPath: join(folder, 'steps') }),
  );
  const paces = pacesOf(steps, new SimulatedEngine(curves, settings['max-running']));
  const predictAt = (paced: ServiceCurves) => predict(load.requests, { settings, curves: paced, simulated });
  return { percent, rate, predicted: predictAt(curves), paces, predictedAtPace: predictAt(curvesAtPaces(curves, paces)), real, faults };
}

async function realSide(
  { settings, progress, children }: PlanRun,
  { model, requests, stepLogPath }: { model: BenchModel; requests: readonly LoadedRequest[]; stepLogPath: string },
): Promise<{ real: Side; steps: StepRecord[]; faults: string[] }> {
  await using stack = await startStack({
    model,
    threads: settings.threads,
    batcherArguments: [...batcherArguments(settings), '--speculation', settings.drafts, '--step-log', stepLogPath],
    bindings: gatewayBindings(settings),
    progress,
    children,
  });
  const stepLog = new StepLogReader(stepLogPath);
  await warmUp(stack);
  await stepLog.take();
  const record = await replay(stack, requests, { clientsBound: 0, drainMs: settings.drain, progress });
  const tally = new GoodputTally(objectivesOf(settings));
  for (const request of record.requests) tally.add(request);
  tally.gaps.merge(record.gaps.data());
  const steps = await stepLog.take();
  const stepTokens = steps.reduce((sum, { rows, chunks }) => chunks.reduce((tokens, chunk) => tokens + chunk.tokens, sum + rows), 0);
  return { real: { figures: tally.figures(settings.duration), stepCount: steps.length, stepTokens }, steps, faults: record.faults };
}

/** The very same requests at the same times, prompts by their real tokens, so that only the model can differ. */
function predict(
  requests: readonly LoadedRequest[],
  { settings, curves, simulated }: { settings: PlanRun['settings']; curves: ServiceCurves; simulated: SimulatedSettings },
): Side {
  const tally = new GoodputTally(objectivesOf(settings));
  const { use } = simulateFleet({
    ...{ curves, settings: simulated, admission: admissionSettings(settings), batcherCount: 1 },
    requests: requests.map(({ atMs, content, tokenIds, completionTokens }, index) => ({
      ...{ id: `r${index}`, arrivedAt: atMs, promptTokenIds: tokenIds, completionTokens },
      estimatedPromptTokens: estimatePromptTokens({ prompt: { kind: 'chat', messages: [{ role: 'user', content }] } }),
    })),
    windowMs: requests.at(-1)?.atMs ?? 0,
    drainMs: settings.drain,
    gaps: tally.gaps,
    onServed: served => tally.add(served),
  });
  return { figures: tally.figures(settings.duration), stepCount: use.stepCount, stepTokens: use.prefillTokens + use.decodeTokens };
}

function objectivesOf(settings: PlanRun['settings']): Objectives {
  return { ttftMs: settings['ttft-slo'], tpotMs: settings['tpot-slo'] };
}

interface Outcome {
  model: BenchModel;
  curves: ServiceCurves;
  knee: number;
  rounds: readonly Round[];
}

function findings(settings: PlanRun['settings'], { model, curves, knee, rounds }: Outcome): Findings {
  const { ttftMs, tpotMs } = objectivesOf(settings);
  return {
    title: `The planner against a replay of ${settings.trace}: TTFT within ${durationText(ttftMs)} and ${durationText(tpotMs)} per output token, knee at ${knee.toFixed(2)} requests/s`,
    versions: model.versions,
    tables: rounds.map(roundTable),
    figures: { knee, curves, rounds: rounds.map(({ faults, ...round }) => ({ ...round, faultCount: faults.length })) },
    bars: rounds.flatMap(roundBars),
    notes: [
      `service curves of ${curves.measuredAt}`,
      ...rounds.map(
        ({ percent, paces: { alone, beside, streams } }) =>
          `at ${percent} percent prefill took ${alone.toFixed(2)} times as long as by the curves, beside streams ${beside.toFixed(2)}, all else ${streams.toFixed(2)}`,
      ),
      ...[...new Set(rounds.flatMap(round => round.faults))].slice(0, 5).map(fault => `broken: ${fault.slice(0, 200)}`),
    ],
  };
}

function roundTable({ percent, rate, predicted, predictedAtPace, real }: Round): Table {
  const valueRow = (name: string, digits: number, of: (side: Side) => number | undefined) => {
    const was = of(real);
    const shown = (value: number | undefined) => value?.toFixed(digits) ?? '-';
    const beside = (side: Side) => {
      const value = of(side);
      return [shown(value), value === undefined || !was ? '-' : (value / was).toFixed(2)];
    };
    return [name, shown(was), ...beside(predictedAtPace), ...beside(predicted)];
  };
  const row = (name: string, digits: number, of: (figures: GoodputFigures) => number | undefined) =>
    valueRow(name, digits, side => of(side.figures));
  return {
    title: `${percent} percent of the knee: ${rate.toFixed(2)} requests/s, ${real.figures.requestCount} requests`,
    columns: ['', 'real', 'predicted at its pace', 'ratio', 'as measured', 'ratio'],
    rows: [
      row('goodput, requests a second', 3, figures => figures.goodputRequestsPerSecond),
      row('time to first token, ms: p50', 0, figures => figures.ttftMs?.p50),
      row('p90', 0, figures => figures.ttftMs?.p90),
      row('p99', 0, figures => figures.ttftMs?.p99),
      row('per output token, mean of a request, ms: p50', 1, figures => figures.tpotMs?.p50),
      row('p99', 1, figures => figures.tpotMs?.p99),
      row('between two tokens, ms: p50', 1, figures => figures.interTokenMs?.p50),
      row('p99', 1, figures => figures.interTokenMs?.p99),
      row('aggregate tokens/s of whole answers', 1, figures => figures.aggregateTokensPerSecond),
      valueRow('requests refused', 0, side => side.figures.counts.refused),
      valueRow('steps of the batcher', 0, side => side.stepCount),
      valueRow('tokens that it computed', 0, side => side.stepTokens),
    ],
  };
}

function roundBars({ percent, predictedAtPace, real }: Round): Bar[] {
  const off = (of: (figures: GoodputFigures) => number | undefined) =>
    Math.abs((of(predictedAtPace.figures) ?? Number.NaN) / (of(real.figures) ?? Number.NaN) - 1);
  const bar = (name: string, value: number): Bar => ({
    name: `${name} at ${percent} percent of the knee, off by`,
    value,
    relation: '<=',
    limit: MOST_OFF,
  });
  return [
    bar(
      'goodput',
      off(figures => figures.goodputRequestsPerSecond),
    ),
    bar(
      'p99 TTFT',
      off(figures => figures.ttftMs?.p99),
    ),
    { name: `requests broken at ${percent} percent of the knee`, value: real.figures.counts.broken, relation: '=', limit: 0 },
  ];
}
