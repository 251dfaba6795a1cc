/**
 * Bench `capacity`: the planner, which `npx sluice plan` runs: from a trace, two latency objectives and this host's service curves to the rate that one
 * accelerator sustains, the curve around it, and how many accelerators a load needs.
 */
import { access, constants, writeFile } from 'node:fs/promises';
import os from 'node:os';
import { dirname, resolve } from 'node:path';
import { type FleetAnswer, findKnee, fleetFor, type KneeParts, mostPerBatcher } from '../planner/knee.ts';
import { planPage } from '../planner/plan-page.ts';
import type { Scenario } from '../planner/simulation.ts';
import { TrialRunner } from '../planner/trial-runner.ts';
import { type BenchRun, bench } from './bench.ts';
import { type CapacityPlan, capacityFindings } from './capacity-report.ts';
import { wantedCurves } from './host-curves.ts';
import { benchModel } from './model.ts';
import { admissionSettings, planSettings, simulatedSettings, traceLimits } from './plan-settings.ts';
import { scaledTrace } from './scaled-trace.ts';
import { type SettingSpecs, UsageError } from './settings.ts';

/** Simulations beside each other: each has a whole trace in memory. */
const MOST_THREADS = 16;
/** Of the knee. */
const CURVE_SHARES = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5];
/** Rates tried where there is no knee, of what a batcher can compute at the most. */
const NO_KNEE_SHARES = [0.02, 0.1, 0.25, 0.5, 0.75, 1];

const SETTINGS = {
  ...planSettings,
  rate: {
    kind: 'number',
    default: 0,
    min: 0,
    max: 1_000_000,
    help: 'requests a second that are to be served; 0 asks for one accelerator only',
  },
  accelerators: {
    kind: 'count',
    default: 0,
    min: 0,
    max: 10_000,
    help: 'with --rate: simulates so many instead of looking for the fewest',
  },
  requests: {
    kind: 'count',
    default: 2_000,
    min: 100,
    max: 1_000_000,
    help: 'requests of each simulated load; with --accelerators of that one',
  },
  seed: { kind: 'count', default: 1, min: 0, max: 2 ** 31 - 1, help: 'of the arrivals' },
  html: { kind: 'text', default: 'sluice-plan.html', help: 'page with plots; none writes none' },
} as const satisfies SettingSpecs;

export const capacityBench = bench({
  settings: SETTINGS,
  async run(run) {
    const { settings, progress } = run;
    await checkWish(settings);
    const curves = await wantedCurves(settings, () => benchModel(settings, progress), run);
    const { trace, notes } = await scaledTrace(settings, traceLimits(curves));
    const scenario: Scenario = {
      curves,
      settings: simulatedSettings(settings, curves, trace),
      admission: admissionSettings(settings),
      trace,
      arrivals: settings.arrivals,
      objectives: { ttftMs: settings['ttft-slo'], tpotMs: settings['tpot-slo'] },
      requestCount: settings.accelerators > 0 ? Math.min(settings.requests, SETTINGS.requests.default) : settings.requests,
      seed: settings.seed,
    };
    const plan = await makePlan(run, scenario);
    const report = capacityFindings(settings, { scenario, plan, notes, factor: trace.factor });
    if (settings.html !== 'none') {
      await writeFile(settings.html, await planPage({ ...report, curve: plan.curve, knee: plan.knee, objectives: scenario.objectives }));
      progress(`plots: ${settings.html}`);
    }
    return report;
  },
});

type CapacityRun = BenchRun<typeof SETTINGS>;

/** Before anything that takes its time. */
async function checkWish({ accelerators, rate, html }: CapacityRun['settings']): Promise<void> {
  if (accelerators > 0 && rate === 0) throw new UsageError('--accelerators needs --rate, the load that they are to serve');
  if (html === 'none') return;
  const folder = dirname(resolve(html));
  await access(folder, constants.W_OK).catch((error: NodeJS.ErrnoException) => {
    throw new UsageError(`--html ${html}: ${folder} cannot be written to (${error.code})`);
  });
}

async function makePlan({ settings, progress }: CapacityRun, scenario: Scenario): Promise<CapacityPlan> {
  await using runner = new TrialRunner(scenario, Math.min(os.availableParallelism(), MOST_THREADS));
  const startedAt = performance.now();
  const parts = { run: runner.run.bind(runner), target: settings.attainment / 100 };
  const most = mostPerBatcher(scenario);
  progress('simulating one accelerator');
  const { best: knee } = await findKnee(parts, { mostPerBatcher: most, batcherCount: 1 });
  const rates = knee === undefined ? NO_KNEE_SHARES.map(share => share * most) : CURVE_SHARES.map(share => share * knee.rate);
  const curve = await Promise.all(rates.map(rate => runner.run({ rate, batcherCount: 1 })));
  const fleet = await fleetOf(settings, { parts, knee: knee?.rate, most, progress });
  return { knee, curve, fleet, seconds: (performance.now() - startedAt) / 1000 };
}

async function fleetOf(
  settings: CapacityRun['settings'],
  { parts, knee, most, progress }: { parts: KneeParts; knee: number | undefined; most: number; progress: CapacityRun['progress'] },
): Promise<FleetAnswer | undefined> {
  const { rate, accelerators: batcherCount } = settings;
  if (rate === 0) return undefined;
  progress(`simulating a fleet at ${rate} requests/s`);
  if (batcherCount > 0) return { batcherCount, trial: await parts.run({ rate, batcherCount }, settings.requests) };
  return knee === undefined ? undefined : await fleetFor(parts, { rate, knee, mostPerBatcher: most });
}
