/**
 * PathCost: what the whole product adds to its engine's own times on this host: the way of a request to the scheduler and of a token to the client, and
 * how much longer the batcher's steps take beside gateway, Redis and clients, by its own log of them. A minute on a small host.
 */
import { NO_PATH, type PathCosts, type ServiceCurves } from '../planner/service-curves.ts';
import { SimulatedEngine } from '../planner/simulated-engine.ts';
import { fitSteps } from '../planner/step-fit.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { passage } from './passages.ts';
import { percentile } from './spread.ts';
import type { Stack } from './stack.ts';
import type { StepLogReader } from './step-log-reader.ts';

/** Streams at once, of which steps are measured. */
const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const PROBES = 6;
/** So that all streams run together for a while. */
const TOKENS_AT_LEAST = 120;
const TOKENS_PER_STREAM = 3;
/** Before anything is measured: the first streams of a process compile its code. */
const WARM_UP_STREAMS = 8;
/** Of the streams of all sizes. */
const STREAM_ROUNDS = 2;
/** Clients that ask again when they are answered, each of these times; prompts of all lengths come beside streams. */
const CLIENTS = 8;
const REQUESTS_A_CLIENT = 16;
const REQUEST_TOKENS = 24;
const PROMPT_WORDS = { short: 12, middle: 60, long: 150 };

export interface PathMeasurement {
  stack: Stack;
  /** Of the stack's one batcher. */
  stepLog: StepLogReader;
  text: string;
  maxRunning: number;
  /** Of the engine alone, on the same host. */
  curves: Pick<ServiceCurves, 'decode' | 'prefill' | 'prefillPast' | 'copyMsPerToken'>;
  progress(line: string): void;
}

export async function measurePath(measurement: PathMeasurement): Promise<{ path: PathCosts; copyMsPerToken: number }> {
  const { stack, stepLog, text, maxRunning, curves, progress } = measurement;
  let index = 0;
  const ask = async (maxTokens: number, promptWords = PROMPT_WORDS.short): Promise<StreamOutcome> => {
    const content = `Path ${passage(text, index++, promptWords)}`;
    const body = { model: 'default', messages: [{ role: 'user', content }], max_tokens: maxTokens, ignore_eos: true, temperature: 0.8 };
    const outcome = await streamChat(stack.target, { body });
    if (outcome.faults.length > 0 || outcome.timings === undefined)
      throw new Error(`a stream failed: ${outcome.faults[0] ?? 'no timings'}`);
    return outcome;
  };
  await Promise.all(Array.from({ length: WARM_UP_STREAMS }, () => ask(TOKENS_AT_LEAST)));
  await stepLog.take();

  progress('measuring the way to an idle batcher and back');
  const probes: StreamOutcome[] = [];
  for (const words of [PROMPT_WORDS.short, PROMPT_WORDS.long])
    for (let probe = 0; probe < PROBES; probe++) probes.push(await ask(2, words));
  const medianOf = (ms: (probe: StreamOutcome) => number) => percentile(probes.map(ms), 50);
  const queueMs = medianOf(probe => probe.timings!.queueMs);
  const aroundMs = medianOf(probe => probe.chunkTimes[0]! - probe.startedAt - probe.timings!.ttftMs);

  for (let round = 0; round < STREAM_ROUNDS; round++) {
    for (const rows of [...BATCHES.filter(batch => batch < maxRunning), maxRunning]) {
      progress(`measuring steps of ${rows} streams`);
      const tokens = TOKENS_AT_LEAST + TOKENS_PER_STREAM * rows;
      await Promise.all(Array.from({ length: rows }, () => ask(tokens)));
    }
  }
  progress('measuring requests that come and go');
  const lengths = Object.values(PROMPT_WORDS);
  const client = async (first: number) => {
    for (let turn = 0; turn < REQUESTS_A_CLIENT; turn++) await ask(REQUEST_TOKENS, lengths[(first + turn) % lengths.length]);
  };
  await Promise.all(Array.from({ length: Math.min(CLIENTS, maxRunning) }, (_, first) => client(first)));

  const { copyMsPerToken, ...costs } = fitSteps(await stepLog.take(), new SimulatedEngine({ ...curves, path: NO_PATH }, maxRunning));
  // The batcher's clock starts at the gateway; what it does not see is split between the ways there and back, of which only the sum matters.
  const path: PathCosts = { ...NO_PATH, arrivalMs: queueMs + aroundMs / 2, deliveryMs: Math.max(0, aroundMs / 2), ...costs };
  return { path, copyMsPerToken };
}
