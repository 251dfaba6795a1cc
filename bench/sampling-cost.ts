/**
 * SamplingCost: what choosing a token costs, in microseconds a row, for each kind of request, on logits as peaked as a language model's and on flat ones.
 * Figures are of the process's own time in undisturbed runs: the least of several medians, since a machine that is busy elsewhere only adds.
 */

import { CounterRandom } from '../batcher/sampling/counter-random.ts';
import { Sampler } from '../batcher/sampling/sampler.ts';
import { SamplingScratch } from '../batcher/sampling/sampling-scratch.ts';
import type { Sampling } from '../shared/job.ts';

export interface SamplingCost {
  request: string;
  logits: 'peaked' | 'flat';
  vocabSize: number;
  microsPerRow: number;
}

/** A decode step of 32 rows that the issue measures the share against. */
const STEP_MS = 130;
const ROWS = 32;
const ROUNDS = 9;
const SAMPLES_A_ROUND = 3 * ROWS;

const REQUESTS: Record<string, Sampling> = {
  greedy: { temperature: 0 },
  temperature: { temperature: 0.8 },
  'top_p 0.95': { temperature: 0.8, topP: 0.95 },
  'top_k 40': { temperature: 0.8, topK: 40 },
  'top_k 40, top_p 0.95': { temperature: 0.8, topK: 40, topP: 0.95 },
  'min_p 0.05': { temperature: 0.8, minP: 0.05 },
  'typical_p 0.9': { temperature: 0.8, typicalP: 0.9 },
  'all penalties': { temperature: 0, presencePenalty: 0.5, frequencyPenalty: 0.5, repetitionPenalty: 1.1, logitBias: { 5: -1 } },
  'all penalties, top_p 0.95': { temperature: 0.8, topP: 0.95, presencePenalty: 0.5, frequencyPenalty: 0.5, repetitionPenalty: 1.1 },
  'greedy, logprobs 20': { temperature: 0, topLogprobs: 20 },
};

/** Measures every request kind at `vocabSize` and prints a table. */
export function measureSampling(vocabSize = 49_152): SamplingCost[] {
  const scratch = new SamplingScratch(vocabSize);
  const rows = { peaked: logitRows(vocabSize, 3, 12), flat: logitRows(vocabSize, 0.01, 0) };
  const costs = Object.entries(REQUESTS).flatMap(([request, sampling]) =>
    (['peaked', 'flat'] as const).map(logits => ({
      request,
      logits,
      vocabSize,
      microsPerRow: microsPerRow(sampling, rows[logits], scratch),
    })),
  );
  console.log(`Sampling at a vocabulary of ${vocabSize}: µs a row (share of a ${STEP_MS} ms step when all ${ROWS} rows ask for it)`);
  for (const { request, logits, microsPerRow } of costs) {
    const share = (microsPerRow * ROWS) / (STEP_MS * 10);
    console.log(`  ${request.padEnd(26)} ${logits.padEnd(7)} ${microsPerRow.toFixed(0).padStart(6)}  ${share.toFixed(1).padStart(5)} %`);
  }
  return costs;
}

function microsPerRow(sampling: Sampling, rows: readonly Float32Array[], scratch: SamplingScratch): number {
  const promptTokenIds = Array.from({ length: 1000 }, (_, i) => (i * 37) % scratch.vocabSize);
  const sampler = new Sampler({ sampling, stopping: {}, endTokenIds: [2], promptTokenIds, seed: 1, choice: 0 }, scratch);
  for (let i = 0; i < 200; i++) sampler.accept((i * 91) % scratch.vocabSize);
  let position = 0;
  let least = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    const micros: number[] = [];
    for (let i = 0; i < SAMPLES_A_ROUND; i++) {
      const row = rows[position % rows.length]!;
      const from = performance.now();
      sampler.sample(row, position++);
      micros.push((performance.now() - from) * 1000);
    }
    micros.sort((a, b) => a - b);
    least = Math.min(least, micros[micros.length >> 1]!);
  }
  return least;
}

/** Rows of normal noise with a few tokens that stand out by up to `peak`, as a model's next-token logits do. */
function logitRows(vocabSize: number, deviation: number, peak: number): Float32Array[] {
  const random = new CounterRandom(7, 0);
  let position = 0;
  const uniform = (): number => random.at(position++);
  return Array.from({ length: ROWS }, () => {
    const row = Float32Array.from(
      { length: vocabSize },
      () => deviation * Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()),
    );
    for (let i = 0; i < 20 && peak > 0; i++) row[Math.floor(uniform() * vocabSize)] = peak + 6 * uniform();
    return row;
  });
}

if (import.meta.main) measureSampling(process.argv[2] === undefined ? undefined : Number(process.argv[2]));
