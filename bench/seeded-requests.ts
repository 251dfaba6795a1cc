/**
 * SeededRequests: chat requests of every kind that a seed must make repeatable: greedy and sampled, narrowed and penalized, one answer and two,
 * short prompts and long ones; the same list in every run.
 */
import { tokenSource } from './token-source.ts';

export interface SeededRequest {
  /** Tokens of the whole prompt, to be made by the caller. */
  promptTokens: number;
  /** Of the body: all but model and messages. */
  parameters: Record<string, number | boolean>;
}

const PROMPT_TOKENS = { least: 44, most: 600 };
const MAX_TOKENS = { least: 24, most: 48 };
const SAMPLING: readonly Record<string, number>[] = [
  { temperature: 0 },
  { temperature: 0.7 },
  { temperature: 1, top_p: 0.9 },
  { temperature: 0.8, top_k: 40 },
  { temperature: 1.2, top_p: 0.95, min_p: 0.05 },
  { temperature: 0.8, presence_penalty: 0.6, frequency_penalty: 0.4 },
  { temperature: 0, repetition_penalty: 1.2 },
  { temperature: 0.9, typical_p: 0.9, repetition_penalty: 1.1 },
];

export function seededRequests(count: number): SeededRequest[] {
  const below = tokenSource(1 << 20);
  const between = ({ least, most }: { least: number; most: number }) => least + (below() % (most - least + 1));
  return Array.from({ length: count }, (_, index) => ({
    promptTokens: between(PROMPT_TOKENS),
    parameters: {
      ...SAMPLING[index % SAMPLING.length]!,
      seed: 1000 + index,
      // Every third, so that each kind of sampling has both.
      n: index % 3 === 2 ? 2 : 1,
      max_tokens: between(MAX_TOKENS),
      ignore_eos: true,
    },
  }));
}

/** The numbers below `count` in an order that depends on the seed. */
export function shuffled(count: number, seed: number): number[] {
  const below = tokenSource(1 << 20, seed);
  const order = Array.from({ length: count }, (_, index) => index);
  for (let last = count - 1; last > 0; last--) {
    const other = below() % (last + 1);
    [order[last], order[other]] = [order[other]!, order[last]!];
  }
  return order;
}

/** Bytes of the longer text from the first that is not the same in both; 0 when they are equal. */
export function differingBytes(one: string, other: string): number {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  let same = 0;
  while (same < a.length && same < b.length && a[same] === b[same]) same++;
  return Math.max(a.length, b.length) - same;
}
