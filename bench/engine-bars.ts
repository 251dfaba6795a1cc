/** EngineBars: how much faster than its peers our engine has to be. */
import type { EngineWork } from './engine-rate.ts';

/** Over llama.cpp: from that batch on. */
const SHORT_DECODE: readonly (readonly [batch: number, ratio: number])[] = [
  [1, 1.25],
  [2, 1.5],
  [4, 1.8],
  [8, 2],
  [32, 2.2],
];
const LONG_DECODE: readonly (readonly [batch: number, ratio: number])[] = [
  [1, 1.25],
  [8, 1.6],
  [32, 1.8],
];
/** Tokens of context from which attention is a large part of a step. */
const LONG_CONTEXT = 512;
const PREFILL = 2;
const OTHER_PEERS = 1;

export function leastRatio(peer: string, work: EngineWork): number {
  if (peer !== 'llama.cpp') return OTHER_PEERS;
  if (work.kind === 'prefill') return PREFILL;
  const bars = work.contextTokens >= LONG_CONTEXT ? LONG_DECODE : SHORT_DECODE;
  return bars.findLast(([batch]) => batch <= work.batch)![1];
}
