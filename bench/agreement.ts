/**
 * Agreement: our engine against an independent float32 implementation of the same file, teacher-forced: at each step both have seen
 * the reference's tokens, so one early difference is counted once. Takes the way a request takes: prompts by prefill, answers by
 * decode steps of all prompts together.
 */
import type { Engine } from '../batcher/engine/engine.ts';
import { logSumExp, topToken } from '../batcher/quality/perplexity.ts';

/** One prompt of test/reference/*.json. */
export interface ReferencePrompt {
  user: string;
  prompt_token_ids: number[];
  greedy_token_ids: number[];
  /** Of each step the five likeliest: [token id, log-probability]. */
  steps: { top: [number, number][] }[];
}

export interface Agreement {
  stepCount: number;
  topTokenAgreement: number;
  /** Mean of |our log-probability - reference's| over the reference's five likeliest of each step. */
  meanAbsoluteLogprobDifference: number;
}

export async function agreement(engine: Engine, prompts: readonly ReferencePrompt[]): Promise<Agreement> {
  const { vocabSize, rowCount } = engine.shape;
  if (prompts.length > rowCount) throw new RangeError(`${prompts.length} prompts need as many rows, the engine has ${rowCount}`);
  // Longest answer first: rows must be dense from 0, so those that end leave from the end.
  const rows = prompts.toSorted((a, b) => b.steps.length - a.steps.length);
  const tally = { stepCount: 0, agreedCount: 0, differenceSum: 0, differenceCount: 0 };
  const compare = (logits: Float32Array, step: ReferencePrompt['steps'][number]) => {
    const normalizer = logSumExp(logits);
    tally.stepCount++;
    if (topToken(logits) === step.top[0]![0]) tally.agreedCount++;
    for (const [tokenId, logprob] of step.top) {
      tally.differenceSum += Math.abs(logits[tokenId]! - normalizer - logprob);
      tally.differenceCount++;
    }
  };
  for (const [row, prompt] of rows.entries()) {
    compare(await engine.prefill({ row, start: 0, tokenIds: prompt.prompt_token_ids, logitCount: 1 }), prompt.steps[0]!);
  }
  for (let step = 1; step < rows[0]!.steps.length; step++) {
    const active = rows.filter(prompt => step < prompt.steps.length);
    const logits = await engine.decode({
      tokenIds: active.map(prompt => prompt.greedy_token_ids[step - 1]!),
      positions: active.map(prompt => prompt.prompt_token_ids.length + step - 1),
    });
    active.forEach((prompt, row) => {
      compare(logits.subarray(row * vocabSize, (row + 1) * vocabSize), prompt.steps[step]!);
    });
  }
  for (const row of rows.keys()) engine.releaseRow(row, 0);
  return {
    stepCount: tally.stepCount,
    topTokenAgreement: tally.agreedCount / tally.stepCount,
    meanAbsoluteLogprobDifference: tally.differenceSum / tally.differenceCount,
  };
}
