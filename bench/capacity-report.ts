/** CapacityReport: a capacity plan as tables and figures. */
import type { FleetAnswer } from '../planner/knee.ts';
import { DEFAULT_SIMULATED } from '../planner/simulated-batcher.ts';
import type { Scenario, TrialFigures } from '../planner/simulation.ts';
import type { Trace } from '../planner/trace.ts';
import { idealPrefixShare } from '../planner/trace-scaling.ts';
import { DEFAULT_ADMISSION } from '../shared/admission.ts';
import type { Findings, Table } from './report.ts';
import { durationText } from './settings.ts';

export interface CapacityPlan {
  /** Of one accelerator; undefined where not even a nearly idle one keeps the promise. */
  knee: TrialFigures | undefined;
  /** Around the knee, by rate. */
  curve: TrialFigures[];
  fleet: FleetAnswer | undefined;
  seconds: number;
}

/** Of the command line, what the report repeats. */
export interface CapacityWish {
  trace: string;
  /** Percent. */
  attainment: number;
  /** 0 where only one accelerator was asked for. */
  rate: number;
  /** 0 where the fewest were looked for. */
  accelerators: number;
}

export function capacityFindings(
  settings: CapacityWish,
  { scenario, plan, notes, factor }: { scenario: Scenario; plan: CapacityPlan; notes: string[]; factor: number },
): Findings {
  const { curves, objectives, trace } = scenario;
  const { knee, curve, fleet } = plan;
  const promise = `TTFT within ${durationText(objectives.ttftMs)} and ${durationText(objectives.tpotMs)} per output token, of ${settings.attainment} % of the requests`;
  return {
    title: `Capacity for ${settings.trace}, lengths times ${factor.toPrecision(3)}: ${promise}`,
    versions: { model: curves.model, node: process.versions.node },
    tables: [
      {
        title: 'One accelerator',
        columns: ['', 'value'],
        rows: [
          ['host', `${curves.host}, ${curves.threads} threads`],
          ['service curves of', curves.measuredAt],
          ['KV memory, tokens', String(curves.kvTokens)],
          [
            'mean prompt and answer, tokens',
            ['promptTokens', 'completionTokens'].map(name => meanOf(trace, name as 'promptTokens').toFixed(0)).join(' + '),
          ],
          [
            'sustains, requests a second',
            knee?.rate.toFixed(knee.rate < 10 ? 3 : 1) ?? 'none: the promise is not kept even when nearly idle',
          ],
          ...(knee === undefined ? [] : [['aggregate tokens/s there', knee.aggregateTokensPerSecond.toFixed(1)]]),
        ],
      },
      curveTable(curve, knee),
      ...(fleet === undefined ? [] : [fleetTable(fleet, settings)]),
    ],
    figures: {
      knee: knee ?? null,
      curve,
      fleet: fleet ?? null,
      curves,
      factor,
      idealPrefixShare: idealPrefixShare(trace),
      simulationSeconds: plan.seconds,
    },
    bars: [],
    notes: [
      ...notes,
      `simulated in ${plan.seconds.toFixed(1)} s with the product's own scheduler; drafts and batchers' own queues are not simulated`,
      ...startNotes(scenario),
      ...(settings.rate > 0 && knee === undefined
        ? ['how many accelerators are needed cannot be told: one alone does not keep the promise']
        : []),
    ],
  };
}

/** How the product must be started for the plan to hold, where it would not be by itself. */
function startNotes({ settings, admission }: Pick<Scenario, 'settings' | 'admission'>): string[] {
  const batcher = [
    ['max-running', settings.maxRunning, DEFAULT_SIMULATED.maxRunning],
    ['max-batched-tokens', settings.maxBatchedTokens, DEFAULT_SIMULATED.maxBatchedTokens],
    ['itl-slo', settings.itlSloMs, DEFAULT_SIMULATED.itlSloMs],
  ].flatMap(([name, value, usual]) => (value === usual ? [] : [`--${name} ${value}`]));
  const wanted = [
    ...(batcher.length > 0 ? [`batchers with ${batcher.join(' ')}`] : []),
    ...(admission.maxWaitMs === DEFAULT_ADMISSION.maxWaitMs ? [] : [`gateways with SLUICE_MAX_WAIT_MS=${admission.maxWaitMs}`]),
  ];
  return wanted.length === 0 ? [] : [`the plan holds for ${wanted.join(' and ')}`];
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)}%`;
}

function curveTable(curve: readonly TrialFigures[], knee: TrialFigures | undefined): Table {
  const isAnyRefused = curve.some(trial => trial.rejectionRate > 0);
  const s = (ms: number | undefined) => (ms === undefined ? '-' : (ms / 1000).toFixed(2));
  return {
    title: 'Throughput against latency, one accelerator',
    columns: [
      'requests/s',
      'promised',
      ...(isAnyRefused ? ['refused'] : []),
      'goodput/s',
      'agg tok/s',
      'per-req tok/s',
      'TTFT s p50',
      'p99',
      'TPOT ms p50',
      'p99',
      'batch',
      'KV',
      'busy',
    ],
    rows: curve.map(trial => [
      `${trial.rate.toFixed(3)}${trial.rate === knee?.rate ? ' knee' : ''}`,
      percent(trial.attainment),
      ...(isAnyRefused ? [percent(trial.rejectionRate)] : []),
      trial.goodputRequestsPerSecond.toFixed(3),
      trial.aggregateTokensPerSecond.toFixed(1),
      trial.perRequestTokensPerSecondP50?.toFixed(1) ?? '-',
      ...[s(trial.ttftMs?.p50), s(trial.ttftMs?.p99)],
      ...[trial.tpotMs?.p50, trial.tpotMs?.p99].map(ms => ms?.toFixed(0) ?? '-'),
      trial.meanBatch.toFixed(1),
      `${(trial.peakKvUse * 100).toFixed(0)}%`,
      `${(trial.busyShare * 100).toFixed(0)}%`,
    ]),
  };
}

function fleetTable({ batcherCount, trial }: FleetAnswer, settings: CapacityWish): Table {
  return {
    title: `${settings.rate} requests a second`,
    columns: ['', 'value'],
    rows: [
      [settings.accelerators > 0 ? 'accelerators, as given' : 'accelerators needed', String(batcherCount)],
      ['came as promised', percent(trial.attainment)],
      ...(trial.rejectionRate > 0 ? [['refused', percent(trial.rejectionRate)]] : []),
      ['goodput, requests a second', trial.goodputRequestsPerSecond.toFixed(2)],
      ['aggregate tokens/s', trial.aggregateTokensPerSecond.toFixed(0)],
      [
        'TTFT s, p50 and p99',
        [trial.ttftMs?.p50, trial.ttftMs?.p99].map(ms => (ms === undefined ? '-' : (ms / 1000).toFixed(2))).join(' and '),
      ],
      ['simulated requests', String(trial.requestCount)],
    ],
  };
}

function meanOf({ requests }: Trace, of: 'promptTokens' | 'completionTokens'): number {
  return requests.reduce((sum, request) => sum + request[of], 0) / requests.length;
}
