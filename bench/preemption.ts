/**
 * Bench `preemption`: many requests with the lengths of a real trace through the whole path, with so little KV memory that running sequences must
 * give way to each other again and again. Every request must end whole, and the process must keep to its memory.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { PAGE_BYTES } from '../batcher/engine/foreign.ts';
import { kvBytesPerToken } from '../batcher/engine/ort-engine.ts';
import { defaultKvType } from '../batcher/model/prepare.ts';
import type { Trace, TracedRequest } from '../planner/trace.ts';
import { readTrace, TRACE_NAMES } from '../planner/trace-file.ts';
import { fittingFactor, sampleEvenly, scaleTrace } from '../planner/trace-scaling.ts';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { LeftoverProbe, type Leftovers, mib, residentBytes } from './leftovers.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { type BenchModel, benchModel } from './model.ts';
import { PromptMaker } from './prompt-maker.ts';
import type { Findings } from './report.ts';
import type { SettingSpecs } from './settings.ts';
import { percentile } from './spread.ts';
import { startStack } from './stack.ts';

/** Less than the template leaves no room for a word. */
const LEAST_PROMPT_TOKENS = 48;
/** Idle memory is read after so long a prompt and full batches, since the engine's scratch and the heap grow with the largest run of their life. */
const WARM_UP_TOKENS = 512;
const WARM_UP_BURSTS = 2;
const WARM_UP_ANSWER_TOKENS = 16;
/** What JavaScript lets lie before it collects differs by as much from run to run; what is left for good does not. */
const LEFT_ALLOWANCE_BYTES = 64 * 2 ** 20;
/** No stream is waited for: prompts come as fast as they can be computed, so that memory is what is short, on any machine. */
const ITL_SLO_MS = 60_000;
const SAMPLE_MS = 250;
const PROGRESS_MS = 15_000;
const PATIENCE_MS = 600_000;

const SETTINGS = {
  ...commonSettings,
  requests: { kind: 'count', default: 1000, min: 1, max: 1_000_000, help: 'requests, taken evenly from the whole trace' },
  trace: { kind: 'text', default: 'azure-conversation', help: `${TRACE_NAMES.join(', ')}, or a file in the form of one of them` },
  traces: { kind: 'text', default: '', help: 'folder of the named traces' },
  scale: {
    kind: 'count',
    default: 16,
    min: 1,
    max: 100,
    help: "percent of the lengths at which the trace's longest request fills the context",
  },
  clients: { kind: 'count', default: 64, min: 1, max: 1024, help: 'requests at a time; more than the rows, so that some wait' },
  'kv-percent': { kind: 'count', default: 15, min: 1, max: 1000, help: 'KV memory, as percent of what the rows would take at mean length' },
  rows: { kind: 'count', default: 32, min: 2, max: 1024, help: 'sequences that the batcher runs at once at most' },
} as const satisfies SettingSpecs;

export const preemptionBench = bench({
  settings: SETTINGS,
  async run(run) {
    const trace = await readTrace(run.settings.trace, run.settings.traces);
    if (trace.note) run.progress(trace.note);
    const model = await benchModel(run.settings, run.progress);
    const plan = planOf(run.settings, { trace, contextTokens: model.manifest.shape.contextTokens });
    return findings(model, plan, await measure(run, { model, plan }));
  },
});

type PreemptionRun = BenchRun<typeof SETTINGS>;

export interface PreemptionPlan {
  requests: TracedRequest[];
  /** Of the trace's own lengths. */
  factor: number;
  kvTokens: number;
}

/** The lengths to ask for, and KV memory that cannot hold all rows at mean length but holds the longest request. */
export function planOf(
  settings: { requests: number; scale: number; rows: number; 'kv-percent': number },
  { trace, contextTokens }: { trace: Trace; contextTokens: number },
): PreemptionPlan {
  const factor = (fittingFactor(trace, contextTokens) * settings.scale) / 100;
  const scaled = scaleTrace(trace, { factor, leastPromptTokens: LEAST_PROMPT_TOKENS });
  const requests = sampleEvenly(scaled.requests, settings.requests);
  const lengths = requests.map(request => request.promptTokens + request.completionTokens);
  const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
  const longest = lengths.reduce((most, length) => Math.max(most, length), 0);
  const wanted = Math.floor((mean * settings.rows * settings['kv-percent']) / 100);
  return { requests, factor: scaled.factor, kvTokens: Math.max(wanted, longest + 32) };
}

interface Measured {
  outcomes: StreamOutcome[];
  wallMs: number;
  left: Leftovers;
  preemptionCount: number;
  budgetBytes: number;
  residentBytes: { idle: number; atMost: number; atEnd: number };
  /** Memory of keys and values, and what of the last page of each plane of a row no token has come to yet. */
  kvResidentBytes: { atMost: number; openPages: number };
}

async function measure(
  { settings, progress, children }: PreemptionRun,
  { model, plan }: { model: BenchModel; plan: PreemptionPlan },
): Promise<Measured> {
  const { manifest } = model;
  const kilobytes = Math.ceil((plan.kvTokens * kvBytesPerToken(manifest.shape, defaultKvType(manifest))) / 1024);
  const prompts = await PromptMaker.open(model);
  const stack = await startStack({
    model,
    threads: settings.threads,
    batcherArguments: ['--kv-memory', `${kilobytes}K`, '--max-running', String(settings.rows), '--itl-slo', String(ITL_SLO_MS)],
    // Every request is to be taken, however long the queue is on a slow machine.
    bindings: { SLUICE_MAX_WAIT_MS: '3600000' },
    progress,
    children,
  });
  const probe = new LeftoverProbe(stack.redisUrl, model.name);
  try {
    const ask = (content: string, completionTokens: number) =>
      streamChat(stack.target, { body: body(content, completionTokens), silenceMs: PATIENCE_MS });
    const contents = plan.requests.map(({ promptTokens }, index) => prompts.content(index, promptTokens));
    await ask(prompts.content(contents.length, Math.min(WARM_UP_TOKENS, plan.kvTokens - 32)), 1);
    const short = (index: number) => prompts.content(contents.length + 1 + index, LEAST_PROMPT_TOKENS);
    for (let i = 0; i < WARM_UP_BURSTS; i++) {
      await Promise.all(
        Array.from({ length: settings.clients }, (_, index) => ask(short(i * settings.clients + index), WARM_UP_ANSWER_TOKENS)),
      );
    }
    await probe.settled();
    const resident = () => residentBytes(stack.batcherPid());
    const idle = await resident();
    const samples: number[] = [];
    const kvSamples: number[] = [];
    const sampling = new AbortController();
    const sampler = (async () => {
      while (!sampling.signal.aborted) {
        // A sample that cannot be taken (the batcher is being started again) shows in the streams.
        await resident().then(bytes => samples.push(bytes), ignore);
        await stack.metrics().then(page => kvSamples.push(page.total('sluice_kv_cache_resident_bytes')), ignore);
        await sleep(SAMPLE_MS, undefined, { signal: sampling.signal }).catch(ignore);
      }
    })();
    const outcomes: StreamOutcome[] = new Array(plan.requests.length);
    let next = 0;
    let endedCount = 0;
    const saying = setInterval(() => progress(`${endedCount} of ${plan.requests.length} requests`), PROGRESS_MS);
    const startedAt = performance.now();
    const client = async () => {
      for (let index = next++; index < plan.requests.length; index = next++) {
        outcomes[index] = await ask(contents[index]!, plan.requests[index]!.completionTokens);
        endedCount++;
        for (const fault of outcomes[index]!.faults) progress(`fault of request ${index}: ${fault}`);
      }
    };
    try {
      await Promise.all(Array.from({ length: settings.clients }, client));
    } finally {
      clearInterval(saying);
      sampling.abort();
      await sampler;
    }
    const wallMs = performance.now() - startedAt;
    const left = await probe.settled();
    const atEnd = await resident();
    return {
      outcomes,
      wallMs,
      left,
      preemptionCount: (await stack.metrics()).total('sluice_num_preemptions_total'),
      budgetBytes: kilobytes * 1024,
      residentBytes: { idle, atMost: Math.max(...samples, atEnd), atEnd },
      kvResidentBytes: { atMost: Math.max(...kvSamples), openPages: settings.rows * planesOf(manifest.shape) * PAGE_BYTES },
    };
  } finally {
    await probe.close();
    await stack.close();
  }
}

function findings(model: BenchModel, plan: PreemptionPlan, measured: Measured): Findings {
  const { outcomes, wallMs, left, preemptionCount, budgetBytes, residentBytes: resident, kvResidentBytes: kv } = measured;
  const faultCount = outcomes.flatMap(outcome => outcome.faults).length;
  const wholeCount = outcomes.filter(({ faults, usage, finishReasons }, index) => {
    const wanted = plan.requests[index]!.completionTokens;
    return faults.length === 0 && usage?.completionTokens === wanted && finishReasons[0] === 'length';
  }).length;
  const promptTokens = sum(outcomes.map(outcome => outcome.usage?.promptTokens ?? 0));
  const completionTokens = sum(outcomes.map(outcome => outcome.usage?.completionTokens ?? 0));
  const leftBytes = resident.atEnd - resident.idle;
  const ttfts = outcomes.flatMap(({ chunkTimes, startedAt }) => (chunkTimes.length > 0 ? chunkTimes[0]! - startedAt : []));
  const aggregate = (completionTokens * 1000) / wallMs;
  return {
    title: `${outcomes.length} requests of a real trace's lengths with too little KV memory, through the whole path on ${model.name}`,
    versions: model.versions,
    tables: [
      {
        title: `Lengths times ${plan.factor.toPrecision(3)}, ${plan.kvTokens} tokens of KV memory`,
        columns: ['', 'value'],
        rows: [
          ['requests that ended whole', String(wholeCount)],
          ['faults of streams', String(faultCount)],
          ['prompt tokens', String(promptTokens)],
          ['completion tokens', String(completionTokens)],
          ['seconds', (wallMs / 1000).toFixed(0)],
          ['aggregate completion tokens/s', aggregate.toFixed(1)],
          ['TTFT s, p50 (client, queue included)', ttfts.length > 0 ? (percentile(ttfts, 50) / 1000).toFixed(1) : '-'],
          ['preemptions', String(preemptionCount)],
          ['running rows left', String(left.runningCount)],
          ['sequences waiting left', String(left.waitingCount)],
          ['jobs left in Redis', String(left.jobCount)],
          ['KV budget, MiB', mib(budgetBytes)],
          ['keys and values, resident MiB, at most', mib(kv.atMost)],
          ['resident MiB, idle', mib(resident.idle)],
          ['resident MiB, at most', mib(resident.atMost)],
          ['resident MiB, at the end', mib(resident.atEnd)],
        ],
      },
    ],
    figures: {
      factor: plan.factor,
      kvTokens: plan.kvTokens,
      wholeCount,
      faultCount,
      promptTokens,
      completionTokens,
      wallMs,
      aggregateTokensPerSecond: aggregate,
      preemptionCount,
      ...left,
      budgetBytes,
      residentBytes: resident,
      kvResidentBytes: kv,
    },
    bars: [
      { name: 'requests that ended whole', value: wholeCount, relation: '=', limit: plan.requests.length },
      { name: 'faults of streams', value: faultCount, relation: '=', limit: 0 },
      { name: 'preemptions', value: preemptionCount, relation: '>=', limit: 1 },
      { name: 'rows, sequences and jobs left', value: sum(Object.values(left)), relation: '=', limit: 0 },
      {
        name: 'keys and values, resident MiB',
        // Where it was never told, the bar does not hold.
        value: kv.atMost > 0 ? kv.atMost / 2 ** 20 : Number.NaN,
        relation: '<=',
        limit: (budgetBytes + kv.openPages) / 2 ** 20,
      },
      { name: 'resident MiB at the end over idle', value: leftBytes / 2 ** 20, relation: '<=', limit: LEFT_ALLOWANCE_BYTES / 2 ** 20 },
    ],
    notes: [
      `the trace's times are not kept: requests are sent as soon as one before has ended`,
      `keys and values may pass their budget by a page for each row, layer, side and head: ${mib(kv.openPages)} MiB`,
    ],
  };
}

function planesOf({ layers, kvHeads }: { layers: number; kvHeads: number }): number {
  return layers * 2 * kvHeads;
}

function body(content: string, maxTokens: number): Record<string, unknown> {
  return { model: 'default', messages: [{ role: 'user', content }], max_tokens: maxTokens, ignore_eos: true, temperature: 0 };
}

function ignore(): void {}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
