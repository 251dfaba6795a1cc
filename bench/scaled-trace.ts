/** ScaledTrace: the trace that the command line names, its lengths brought to what the model takes, or to the percentage that was asked for. */
import { readTrace } from '../planner/trace-file.ts';
import { fittingFactor, type ScaledTrace, scaleTrace } from '../planner/trace-scaling.ts';
import { UsageError } from './settings.ts';

export interface TraceWish {
  trace: string;
  traces: string;
  /** Percent of the trace's own lengths; 0 takes as much as fits. */
  scale: number;
}

export interface TraceLimits {
  contextTokens: number;
  /** Of a prompt with the model's template around it. */
  leastPromptTokens: number;
}

/** Shorter blocks than a KV block could not be found again. */
const LEAST_BLOCK_TOKENS = 16;

export async function scaledTrace(wish: TraceWish, limits: TraceLimits): Promise<{ trace: ScaledTrace; notes: string[] }> {
  const named = await readTrace(wish.trace, wish.traces);
  const most = fittingFactor(named, limits.contextTokens);
  if (wish.scale / 100 > most) {
    throw new UsageError(
      `--scale ${wish.scale}: the longest request of ${wish.trace} fits the model's ${limits.contextTokens} tokens up to ${(most * 100).toFixed(1)} percent`,
    );
  }
  const trace = scaleTrace(named, { factor: wish.scale === 0 ? most : wish.scale / 100, leastPromptTokens: limits.leastPromptTokens });
  if (trace.blockTokens !== undefined && trace.blockTokens < LEAST_BLOCK_TOKENS) {
    const least = Math.ceil((LEAST_BLOCK_TOKENS / named.blockTokens!) * 1000) / 10;
    throw new UsageError(
      `--scale ${wish.scale}: prefixes of ${wish.trace} are told in blocks of ${named.blockTokens} tokens, which must not become shorter than a KV block; at least ${least} percent`,
    );
  }
  return { trace, notes: named.note === undefined ? [] : [named.note] };
}
