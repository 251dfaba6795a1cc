/**
 * EngineRate: a program of its own, so that its threads are gone when the peer's turn comes. Opens the engine, does one kind of work, prints
 * its tokens/s.
 *
 *   node bench/engine-rate.ts '<{ engine, work } as JSON>'
 *
 * The work is that of llama.cpp's batched bench: a prompt in every row, then steps that feed one random token a row and compute the logits
 * of every row; no sampling on either side.
 */
import type { Engine } from '../batcher/engine/engine.ts';
import { OrtEngine, type OrtEngineOptions } from '../batcher/engine/ort-engine.ts';
import type { BenchRun } from './bench.ts';
import { stepRate } from './step-rate.ts';
import { tokenSource } from './token-source.ts';

/** What either side is to do. Rates of decode are aggregate: all rows together. */
export type EngineWork =
  | { kind: 'decode'; batch: number; contextTokens: number; stepCount: number }
  | { kind: 'prefill'; promptTokens: number };

export interface EngineTask {
  engine: OrtEngineOptions;
  work: EngineWork;
}

export async function measureEngine({ engine: options, work }: EngineTask): Promise<number> {
  const engine = new OrtEngine(options);
  const nextToken = tokenSource(options.model.vocabSize);
  const tokens = (count: number) => Array.from({ length: count }, nextToken);
  try {
    return work.kind === 'decode' ? await decodeRate(engine, work, tokens) : await prefillRate(engine, work.promptTokens, tokens);
  } finally {
    engine.close();
  }
}

/** In a process of its own. */
export async function measureApart(task: EngineTask, children: BenchRun['children']): Promise<number> {
  return Number((await children.run(process.execPath, [import.meta.filename, JSON.stringify(task)])).stdout);
}

async function decodeRate(
  engine: Engine,
  { batch, contextTokens, stepCount }: EngineWork & { kind: 'decode' },
  tokens: (count: number) => number[],
): Promise<number> {
  await engine.prefill({ row: 0, start: 0, tokenIds: tokens(contextTokens), logitCount: 1 });
  for (let row = 1; row < batch; row++) engine.copyRow({ from: 0, to: row, tokens: contextTokens });
  return await stepRate({ rowCount: batch, stepCount }, offset =>
    engine.decode({ tokenIds: tokens(batch), positions: new Array<number>(batch).fill(contextTokens + offset) }),
  );
}

/** Of the second prompt: the first finds no page touched, on either side. */
async function prefillRate(engine: Engine, promptTokens: number, tokens: (count: number) => number[]): Promise<number> {
  const prefill = () => engine.prefill({ row: 0, start: 0, tokenIds: tokens(promptTokens), logitCount: 1 });
  await prefill();
  const startedAt = performance.now();
  await prefill();
  return (promptTokens * 1000) / (performance.now() - startedAt);
}

if (import.meta.main) {
  const task = JSON.parse(process.argv[2] ?? '{}') as EngineTask;
  process.stdout.write(`${await measureEngine(task)}\n`);
}
