/**
 * Bench `overload`: many times more requests than the product can answer, for a while, as clients send them who do not wait for each other. What it
 * refuses it must refuse at once; what it accepts it must answer in time; the tokens/s of whole answers must stay what they were at the best load; memory
 * must stay bounded; and when the flood ends, a newcomer must soon be served as if nothing had been.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { mib, residentBytes } from './leftovers.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { passage, readText } from './passages.ts';
import type { Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { percentile } from './spread.ts';
import { type Stack, startStack } from './stack.ts';
import { randomSource } from './token-source.ts';

const GOODPUT_BAR = 0.9;
const RECOVERY_BAR_MS = 5_000;
const REFUSAL_BAR_MS = 1_000;
/** Of each process, at most beside before. */
const MEMORY_BAR = 1.5;
/** Of the KV cache: what a flood leaves in the prefix cache counts as memory, so it is to be full, or nearly so, when the flood begins. */
const KV_MEMORY = '256M';
/** Enough to fill every row and leave some waiting. */
const PEAK_CLIENTS = 40;
const WARM_UP_MS = 10_000;
const BASE_PROBES = 5;
/** A newcomer is served as before when its first token comes within so many times what it took on an idle product. */
const RECOVERED_FACTOR = 2;
const PROBE_PAUSE_MS = 200;
const RECOVERY_PATIENCE_MS = 120_000;
const SAMPLE_MS = 1_000;

const SETTINGS = {
  ...commonSettings,
  seconds: {
    kind: 'count',
    default: 60,
    min: 5,
    max: 86_400,
    help: 'how long the flood lasts; the best load is measured for a third of it',
  },
  factor: { kind: 'count', default: 10, min: 2, max: 1000, help: 'requests that come, as a multiple of those that can be answered' },
  'max-tokens': { kind: 'count', default: 96, min: 2, max: 4096, help: 'tokens that each request generates' },
  'prompt-words': { kind: 'count', default: 20, min: 1, max: 1000, help: 'words of a prompt' },
  'max-wait-ms': {
    kind: 'count',
    default: 4_000,
    min: 100,
    max: 600_000,
    help: 'SLUICE_MAX_WAIT_MS: the longest wait that is let into the queue',
  },
} as const satisfies SettingSpecs;

export const overloadBench = bench({
  settings: SETTINGS,
  async run(run) {
    const model = await benchModel(run.settings, run.progress);
    return findings(model, run.settings, await measure(run, model));
  },
});

type Settings = OverloadRun['settings'];
type OverloadRun = BenchRun<typeof SETTINGS>;

interface Measured {
  /** Aggregate completion tokens/s of requests that were answered whole. */
  peakTokensPerSecond: number;
  floodTokensPerSecond: number;
  offeredPerSecond: number;
  outcomes: StreamOutcome[];
  idleTtftMs: number;
  recoveryMs: number;
  memory: Record<'gateway' | 'batcher' | 'redis', { before: number; most: number }>;
}

async function measure({ settings, progress, children }: OverloadRun, model: BenchModel): Promise<Measured> {
  const text = await readText();
  const stack = await startStack({
    model,
    threads: settings.threads,
    batcherArguments: ['--kv-memory', KV_MEMORY],
    bindings: { SLUICE_MAX_WAIT_MS: String(settings['max-wait-ms']) },
    progress,
    children,
  });
  let nextIndex = 0;
  const ask = (maxTokens = settings['max-tokens']) =>
    streamChat(stack.target, { body: body(passage(text, nextIndex++, settings['prompt-words']), maxTokens) });
  try {
    await ask();
    const ttfts: number[] = [];
    for (let probe = 0; probe < BASE_PROBES; probe++) ttfts.push(ttftOf(await ask(2))!);
    const idleTtftMs = percentile(ttfts, 50);

    progress(`the best load: ${PEAK_CLIENTS} clients`);
    const peakMs = (settings.seconds * 1000) / 3;
    const peakFrom = performance.now() + WARM_UP_MS;
    const peak = await inTurnUntil(peakFrom + peakMs, () => ask());
    const peakTokensPerSecond = tokensPerSecond(peak, peakFrom, peakFrom + peakMs);
    const offeredPerSecond = (settings.factor * peakTokensPerSecond) / settings['max-tokens'];

    progress(`the flood: ${offeredPerSecond.toFixed(1)} requests/s for ${settings.seconds} s`);
    const memory = new MemoryWatch(stack);
    await memory.start();
    const random = randomSource();
    const floodFrom = performance.now();
    const floodUntil = floodFrom + settings.seconds * 1000;
    const flood: Promise<StreamOutcome>[] = [];
    for (let at = floodFrom; at < floodUntil; at += (-Math.log(1 - random()) * 1000) / offeredPerSecond) {
      await sleep(Math.max(0, at - performance.now()));
      flood.push(ask());
    }
    const recoveryMs = await recovery(floodUntil, idleTtftMs, () => ask(2));
    progress(`served as before ${(recoveryMs / 1000).toFixed(1)} s after the flood`);
    const outcomes = await Promise.all(flood);
    return {
      peakTokensPerSecond,
      // The rows fill in the first seconds, as they did before the best load was measured.
      floodTokensPerSecond: tokensPerSecond(outcomes, floodFrom + WARM_UP_MS / 2, floodUntil),
      offeredPerSecond,
      outcomes,
      idleTtftMs,
      recoveryMs,
      memory: memory.stop(),
    };
  } finally {
    await stack.close();
  }
}

function body(content: string, maxTokens: number): Record<string, unknown> {
  return { model: 'default', messages: [{ role: 'user', content }], max_tokens: maxTokens, ignore_eos: true, temperature: 0.8 };
}

async function inTurnUntil(endAt: number, ask: () => Promise<StreamOutcome>): Promise<StreamOutcome[]> {
  const outcomes: StreamOutcome[] = [];
  const client = async () => {
    while (performance.now() < endAt) outcomes.push(await ask());
  };
  await Promise.all(Array.from({ length: PEAK_CLIENTS }, client));
  return outcomes;
}

/** From the end of the flood to the start of the first request whose first token came as soon as on an idle product. */
async function recovery(floodUntil: number, idleTtftMs: number, probe: () => Promise<StreamOutcome>): Promise<number> {
  for (;;) {
    const outcome = await probe();
    const ttftMs = ttftOf(outcome);
    if (ttftMs !== undefined && ttftMs <= RECOVERED_FACTOR * idleTtftMs) return Math.max(0, outcome.startedAt - floodUntil);
    if (performance.now() - floodUntil > RECOVERY_PATIENCE_MS) return Number.POSITIVE_INFINITY;
    await sleep(PROBE_PAUSE_MS);
  }
}

function ttftOf(outcome: StreamOutcome): number | undefined {
  return outcome.faults.length > 0 || outcome.chunkTimes.length === 0 ? undefined : outcome.chunkTimes[0]! - outcome.startedAt;
}

/** Of requests that ended whole: their tokens that came in the span, spread over each one's chunks. */
function tokensPerSecond(outcomes: readonly StreamOutcome[], from: number, until: number): number {
  let tokens = 0;
  for (const { faults, usage, chunkTimes } of outcomes) {
    if (faults.length > 0 || usage === undefined) continue;
    tokens += (usage.completionTokens * chunkTimes.filter(at => at >= from && at < until).length) / Math.max(1, chunkTimes.length);
  }
  return (tokens * 1000) / (until - from);
}

class MemoryWatch {
  readonly #stack: Stack;
  readonly #samples = { gateway: [] as number[], batcher: [] as number[], redis: [] as number[] };
  #timer: NodeJS.Timeout | undefined;

  constructor(stack: Stack) {
    this.#stack = stack;
  }

  async start(): Promise<void> {
    await this.#sample();
    this.#timer = setInterval(() => void this.#sample(), SAMPLE_MS);
  }

  stop(): Measured['memory'] {
    clearInterval(this.#timer);
    const span = (samples: readonly number[]) => ({ before: samples[0]!, most: Math.max(...samples) });
    const { gateway, batcher, redis } = this.#samples;
    return { gateway: span(gateway), batcher: span(batcher), redis: span(redis) };
  }

  async #sample(): Promise<void> {
    const pids = { gateway: this.#stack.gatewayPid(), batcher: this.#stack.batcherPids[0], redis: this.#stack.redisPid() };
    for (const part of ['gateway', 'batcher', 'redis'] as const) {
      const pid = pids[part];
      if (pid !== undefined) this.#samples[part].push(await residentBytes(pid));
    }
  }
}

function findings(model: BenchModel, settings: Settings, measured: Measured): Findings {
  const { outcomes, memory } = measured;
  const isRefusal = (outcome: StreamOutcome) => outcome.status === 429 || outcome.status === 503;
  const refused = outcomes.filter(isRefusal);
  const whole = outcomes.filter(outcome => outcome.faults.length === 0);
  const broken = outcomes.filter(outcome => outcome.faults.length > 0 && !isRefusal(outcome));
  const refusalMs = refused.map(outcome => outcome.endedAt - outcome.startedAt);
  const ttftMs = whole.flatMap(outcome => ttftOf(outcome) ?? []);
  const at = (values: readonly number[], rank: number) => (values.length === 0 ? Number.NaN : percentile(values, rank));
  const share = measured.floodTokensPerSecond / measured.peakTokensPerSecond;
  return {
    title: `${settings.factor} times the capacity for ${settings.seconds} s, through the whole path on ${model.name}`,
    versions: model.versions,
    tables: [
      {
        title: 'Goodput: aggregate tokens/s of whole answers',
        columns: ['', 'value'],
        rows: [
          [`best load (${PEAK_CLIENTS} clients, each waiting for its answer)`, measured.peakTokensPerSecond.toFixed(1)],
          [`flood (${measured.offeredPerSecond.toFixed(1)} requests/s)`, measured.floodTokensPerSecond.toFixed(1)],
          ['share', share.toFixed(3)],
        ],
      },
      {
        title: 'Requests of the flood',
        columns: ['', 'count', 'p50 ms', 'p99 ms', 'most ms'],
        rows: [
          ['answered whole: to the first token', whole.length, ...[50, 99, 100].map(rank => at(ttftMs, rank))],
          ['refused (429, 503): to the refusal', refused.length, ...[50, 99, 100].map(rank => at(refusalMs, rank))],
          ['broken', broken.length, '', '', ''],
        ].map(row => row.map(cell => (typeof cell === 'number' ? cell.toFixed(0) : cell))),
      },
      {
        title: 'Resident memory, MiB',
        columns: ['', 'before', 'at most'],
        rows: Object.entries(memory).map(([part, { before, most }]) => [part, mib(before), mib(most)]),
      },
      {
        title: 'After the flood',
        columns: ['', 'ms'],
        rows: [
          ['first token on an idle product', measured.idleTtftMs.toFixed(0)],
          [`until a newcomer has it within ${RECOVERED_FACTOR} times that`, measured.recoveryMs.toFixed(0)],
        ],
      },
    ],
    figures: {
      peakAggregateTokensPerSecond: measured.peakTokensPerSecond,
      floodAggregateTokensPerSecond: measured.floodTokensPerSecond,
      offeredRequestsPerSecond: measured.offeredPerSecond,
      counts: { whole: whole.length, refused: refused.length, broken: broken.length },
      ttftMs: { p50: at(ttftMs, 50), p99: at(ttftMs, 99) },
      refusalMs: { p50: at(refusalMs, 50), p99: at(refusalMs, 99) },
      recoveryMs: measured.recoveryMs,
      memoryBytes: memory,
      faults: [...new Set(broken.flatMap(outcome => outcome.faults))],
    },
    bars: [
      { name: 'goodput in the flood over the best', value: share, relation: '>=', limit: GOODPUT_BAR },
      { name: 'requests broken', value: broken.length, relation: '=', limit: 0 },
      { name: 'ms to a refusal, p99', value: at(refusalMs, 99), relation: '<=', limit: REFUSAL_BAR_MS },
      { name: 'ms from the end of the flood until served as before', value: measured.recoveryMs, relation: '<=', limit: RECOVERY_BAR_MS },
      ...Object.entries(memory).map(([part, { before, most }]) => ({
        name: `resident memory of ${part}, at most over before`,
        value: most / before,
        relation: '<=' as const,
        limit: MEMORY_BAR,
      })),
    ],
    notes: [
      `the batcher has ${KV_MEMORY} of KV memory`,
      ...[...new Set(broken.flatMap(outcome => outcome.faults))].slice(0, 5).map(fault => `broken: ${fault.slice(0, 200)}`),
    ],
  };
}
