/**
 * PathCost: what the whole product adds to its engine's own times on this host: the way of a request to the scheduler and of a token to the client, how
 * much longer steps take beside gateway, Redis and clients, and what requests that come and go while others run cost. By streams through the real
 * product, a minute on a small host.
 */
import { NO_PATH, type PathCosts, type ServiceCurves } from '../planner/service-curves.ts';
import type { SimulatedSettings } from '../planner/simulated-batcher.ts';
import { SimulatedEngine } from '../planner/simulated-engine.ts';
import { type StreamOutcome, streamChat } from './load-client.ts';
import { passage } from './passages.ts';
import { measureRequests } from './request-cost.ts';
import { percentile } from './spread.ts';
import type { Stack } from './stack.ts';
import { streamFigures } from './stream-figures.ts';

/** Streams at once, of which steps are measured. */
const BATCHES = [1, 2, 8, 16, 32, 64, 128, 256];
const PROBES = 6;
const PROMPT_WORDS = 12;
/** So that all streams run together for a while. */
const TOKENS_AT_LEAST = 120;
const TOKENS_PER_STREAM = 3;
/** Before anything is measured: the first streams of a process compile its code. */
const WARM_UP_STREAMS = 8;
/** Over all batches; of each the shortest step counts, since whatever disturbs it makes it longer. */
const STEP_ROUNDS = 2;

export interface PathMeasurement {
  stack: Stack;
  text: string;
  settings: SimulatedSettings;
  /** With which every prompt begins. */
  templateTokens: number;
  /** Of the engine alone, on the same host. */
  curves: Pick<ServiceCurves, 'decode' | 'prefill' | 'prefillPast' | 'copyMsPerToken'>;
  progress(line: string): void;
}

export async function measurePath({ stack, text, settings, templateTokens, curves, progress }: PathMeasurement): Promise<PathCosts> {
  const { maxRunning } = settings;
  let index = 0;
  const ask = async (maxTokens: number, promptWords = PROMPT_WORDS): Promise<StreamOutcome> => {
    const content = `Path ${passage(text, index++, promptWords)}`;
    const body = { model: 'default', messages: [{ role: 'user', content }], max_tokens: maxTokens, ignore_eos: true, temperature: 0.8 };
    const outcome = await streamChat(stack.target, { body });
    if (outcome.faults.length > 0 || outcome.timings === undefined)
      throw new Error(`a stream failed: ${outcome.faults[0] ?? 'no timings'}`);
    return outcome;
  };
  await Promise.all(Array.from({ length: WARM_UP_STREAMS }, () => ask(TOKENS_AT_LEAST)));
  progress('measuring the way to an idle batcher and back');
  const probes: StreamOutcome[] = [];
  while (probes.length < PROBES) probes.push(await ask(2));
  const queueMs = percentile(
    probes.map(probe => probe.timings!.queueMs),
    50,
  );
  const aroundMs = percentile(
    probes.map(probe => probe.chunkTimes[0]! - probe.startedAt - probe.timings!.ttftMs),
    50,
  );
  const engine = new SimulatedEngine({ ...curves, path: NO_PATH }, maxRunning);
  const extraMs = new Map<number, number>();
  for (let round = 0; round < STEP_ROUNDS; round++) {
    for (const rows of [...BATCHES.filter(batch => batch < maxRunning), maxRunning]) {
      progress(`measuring steps of ${rows} streams`);
      const tokens = TOKENS_AT_LEAST + TOKENS_PER_STREAM * rows;
      const outcomes = await Promise.all(Array.from({ length: rows }, () => ask(tokens)));
      const figures = streamFigures(outcomes);
      const rate = figures.allRunningAggregateTokensPerSecond;
      if (rate === undefined) continue;
      const context = (figures.promptTokens + figures.completionTokens / 2) / rows;
      const extra = (rows * 1000) / rate - engine.decodeMs(rows, rows * context);
      extraMs.set(rows, Math.min(extra, extraMs.get(rows) ?? Number.POSITIVE_INFINITY));
    }
  }
  const steps = [...extraMs].map(([rows, ms]) => ({ rows, extraMs: ms }));
  // The batcher's clock starts at the gateway; what it does not see is split between the ways there and back, of which only the sum matters.
  const path: PathCosts = { ...NO_PATH, arrivalMs: queueMs + aroundMs / 2, deliveryMs: Math.max(0, aroundMs / 2), steps };
  return { ...path, ...(await measureRequests({ ask, curves: { ...curves, path }, settings, templateTokens, progress })) };
}
