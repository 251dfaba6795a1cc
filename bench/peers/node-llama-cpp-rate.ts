/**
 * NodeLlamaCppRate: a program of its own: decode or prefill by node-llama-cpp, its sequences evaluated together; prints tokens/s, of all
 * sequences together. It picks the likeliest token where our side picks none: it has no way to decode without.
 *
 *   node bench/peers/node-llama-cpp-rate.ts '<NodeLlamaCppPlan as JSON>'
 */
import type { EngineWork } from '../engine-rate.ts';
import { stepRate } from '../step-rate.ts';
import { tokenSource } from '../token-source.ts';

export interface NodeLlamaCppPlan {
  /** Its entry, as a URL. */
  library: string;
  modelPath: string;
  threads: number;
  vocabSize: number;
  work: EngineWork;
}

interface Sequence {
  evaluate(tokens: readonly number[], options: Record<string, unknown>): AsyncGenerator<number>;
  clearHistory(): Promise<void>;
}

interface Library {
  getLlama(options: Record<string, unknown>): Promise<{
    loadModel(options: { modelPath: string }): Promise<{
      createContext(options: Record<string, unknown>): Promise<{ getSequence(): Sequence }>;
    }>;
  }>;
}

/** Room for what is generated beyond what is counted. */
const SPARE_TOKENS = 16;
const GREEDY = { temperature: 0, yieldEogToken: true };

const plan = JSON.parse(process.argv[2] ?? '{}') as NodeLlamaCppPlan;
const { work, threads } = plan;
const library = (await import(plan.library)) as Library;
const llama = await library.getLlama({
  gpu: false,
  build: 'never',
  skipDownload: true,
  maxThreads: threads,
  logLevel: 'error',
  progressLogs: false,
});
const model = await llama.loadModel({ modelPath: plan.modelPath });
const rowCount = work.kind === 'decode' ? work.batch : 1;
const rowTokens = work.kind === 'decode' ? work.contextTokens + work.stepCount : work.promptTokens;
const contextSize = rowTokens + SPARE_TOKENS;
const context = await model.createContext({ contextSize, sequences: rowCount, threads, batchSize: Math.max(512, rowCount) });
const nextToken = tokenSource(plan.vocabSize);
const tokens = (count: number) => Array.from({ length: count }, nextToken);

async function prefillSeconds(sequence: Sequence): Promise<number> {
  await sequence.clearHistory();
  const prompt = tokens(rowTokens);
  const startedAt = performance.now();
  await sequence.evaluate(prompt, GREEDY).next();
  return (performance.now() - startedAt) / 1000;
}

if (work.kind === 'prefill') {
  const sequence = context.getSequence();
  // Twice: only the second prompt finds every page touched.
  await prefillSeconds(sequence);
  console.log(work.promptTokens / (await prefillSeconds(sequence)));
} else {
  const streams = Array.from({ length: rowCount }, () => context.getSequence().evaluate(tokens(work.contextTokens), GREEDY));
  console.log(await stepRate({ rowCount, stepCount: work.stepCount }, () => Promise.all(streams.map(stream => stream.next()))));
}
// What it holds would keep the process alive.
process.exit(0);
