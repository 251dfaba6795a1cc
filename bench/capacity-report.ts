/** CapacityReport: a capacity plan as tables and figures. */
import type { FleetAnswer } from '../planner/knee.ts';
import type { Scenario, TrialFigures } from '../planner/simulation.ts';
import type { Trace } from '../planner/trace.ts';
import { idealPrefixShare } from '../planner/trace-scaling.ts';
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
      `simulated in ${plan.seconds.toFixed(1)} s with the product's own scheduler; drafts, admission by estimated wait and batchers' own queues are not simulated`,
      ...(settings.rate > 0 && knee === undefined
        ? ['how many accelerators are needed cannot be told: one alone does not keep the promise']
        : []),
    ],
  };
}

function curveTable(curve: readonly TrialFigures[], knee: TrialFigures | undefined): Table {
  const s = (ms: number | undefined) => (ms === undefined ? '-' : (ms / 1000).toFixed(2));
  return {
    title: 'Throughput against latency, one accelerator',
    columns: [
      'requests/s',
      'promised',
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
      `${(trial.attainment * 100).toFixed(1)}%`,
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
      ['came as promised', `${(trial.attainment * 100).toFixed(1)}%`],
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
