/** ReplayLoad: what a replay is to send: the arrivals of a trace at a rate, each with a prompt made for it, and what a prefix cache could find in them. */
import { type ArrivalKind, arrivals } from '../planner/arrivals.ts';
import { idealBlockHits } from '../planner/block-hits.ts';
import type { TracedRequest } from '../planner/trace.ts';
import { idealPrefixShare } from '../planner/trace-scaling.ts';
import type { BenchModel } from './model.ts';
import { scaledTrace, type TraceWish } from './scaled-trace.ts';
import { type TracedPrompt, TracedPrompts } from './traced-prompts.ts';

const BLOCK_TOKENS = 16;

export interface ReplayWish extends TraceWish {
  arrivals: ArrivalKind;
  rate: number;
  duration: number;
  seed: number;
}

export interface LoadedRequest extends TracedRequest, TracedPrompt {}

export interface ReplayLoad {
  requests: LoadedRequest[];
  /** Of the trace's own lengths. */
  factor: number;
  /** Of all prompt tokens: shared by the trace's own word, and by whole KV blocks of these prompts, which begin with the template's tokens. */
  idealShare: { trace: number; blocks: number };
  notes: string[];
}

export async function replayLoad(wish: ReplayWish, model: BenchModel): Promise<ReplayLoad> {
  const prompts = await TracedPrompts.open(model);
  const limits = { contextTokens: model.manifest.shape.contextTokens, leastPromptTokens: prompts.leastTokens };
  const { trace: scaled, notes } = await scaledTrace(wish, limits);
  const count = Math.max(1, Math.round((wish.rate * wish.duration) / 1000));
  const planned = arrivals(scaled, { kind: wish.arrivals, rate: wish.rate, count, seed: wish.seed });
  const requests = planned.map((request, index) => ({ ...request, ...prompts.prompt(index, request, scaled.blockTokens) }));
  const tracedShare = idealPrefixShare({ requests: planned, blockTokens: scaled.blockTokens });
  const hits = idealBlockHits(
    requests.map(request => request.tokenIds),
    BLOCK_TOKENS,
  );
  const promptTokens = requests.reduce((sum, request) => sum + request.tokenIds.length, 0);
  return {
    requests,
    factor: scaled.factor,
    idealShare: {
      trace: tracedShare.sharedTokens / tracedShare.promptTokens,
      blocks: hits.reduce((sum, tokens) => sum + tokens, 0) / promptTokens,
    },
    notes,
  };
}
