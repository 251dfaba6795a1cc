/** TraceScaling: a trace's lengths shrunk by one factor until they fit a model; which requests are near each other in length stays. */
import type { Trace, TracedRequest } from './trace.ts';

export interface ScaledTrace extends Trace {
  /** Of the trace's own lengths, as it came out. */
  factor: number;
}

/** With which the trace's longest request just fits the context; 1 where all of them do. */
export function fittingFactor({ requests }: Trace, contextTokens: number): number {
  const longest = requests.reduce((most, request) => Math.max(most, request.promptTokens + request.completionTokens), 0);
  return Math.min(1, contextTokens / longest);
}

/**
 * All lengths times `factor`; a request keeps one answer token, and `leastPromptTokens` of its prompt, at least (a chat template leaves no room for
 * less). Blocks of a prefix shrink to whole tokens, so that what was shared stays shared.
 */
export function scaleTrace(trace: Trace, { factor, leastPromptTokens = 1 }: { factor: number; leastPromptTokens?: number }): ScaledTrace {
  const blockTokens = trace.blockTokens === undefined ? undefined : Math.max(1, Math.floor(trace.blockTokens * factor));
  const promptFactor = blockTokens === undefined ? factor : blockTokens / trace.blockTokens!;
  const requests = trace.requests.map(request => ({
    ...request,
    promptTokens: Math.max(leastPromptTokens, Math.floor(request.promptTokens * promptFactor)),
    completionTokens: Math.max(1, Math.floor(request.completionTokens * factor)),
  }));
  return { requests, blockTokens, factor: promptFactor };
}

/** `count` requests at even distances over the whole trace, so that all of its day is in; more than it has repeats it. */
export function sampleEvenly(requests: readonly TracedRequest[], count: number): TracedRequest[] {
  if (count >= requests.length) return Array.from({ length: count }, (_, index) => requests[index % requests.length]!);
  return Array.from({ length: count }, (_, index) => requests[Math.floor((index * requests.length) / count)]!);
}

export interface PrefixShare {
  promptTokens: number;
  /** Of them, those in blocks at the front of a prompt that an earlier request began with too. */
  sharedTokens: number;
}

/** What a prefix cache without bounds would find of requests in this order; nothing where the trace has no prefix identity. */
export function idealPrefixShare({ requests, blockTokens }: Trace): PrefixShare {
  const seen = new Set<number>();
  const share = { promptTokens: 0, sharedTokens: 0 };
  for (const { promptTokens, blockIds = [] } of requests) {
    share.promptTokens += promptTokens;
    const known = blockIds.findIndex(id => !seen.has(id));
    const knownBlocks = known < 0 ? blockIds.length : known;
    if (blockTokens !== undefined) share.sharedTokens += Math.min(promptTokens, knownBlocks * blockTokens);
    for (const id of blockIds) seen.add(id);
  }
  return share;
}
