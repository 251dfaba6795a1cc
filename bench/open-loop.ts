/**
 * OpenLoop: sends requests at given times, whatever has become of those before: users do not wait for each other. A server that falls behind
 * gets no relief by it, which is what separates this from a fixed number of clients.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ServedRequest } from '../planner/goodput.ts';
import { LatencyHistogram } from '../planner/latency-histogram.ts';
import type { StreamOutcome } from './load-client.ts';

export interface PlannedArrival {
  atMs: number;
  /** As planned; what a server counts goes before. */
  promptTokens: number;
}

export interface OpenLoopOptions {
  /** Most requests that the client has open at once; one more is not sent. 0 is no bound. */
  clientsBound: number;
  /** After the last arrival: what is still open then is cut, and counts as unfinished. */
  drainMs: number;
  send(index: number, signal: AbortSignal): Promise<StreamOutcome>;
  onProgress?(sentCount: number, openCount: number): void;
}

export interface OpenLoopRecord {
  requests: ServedRequest[];
  gaps: LatencyHistogram;
  /** Of requests that were sent later than planned: by how much; a slow load machine shows here. */
  latenessMs: LatencyHistogram;
  faults: string[];
}

export async function sendOpenLoop(arrivals: readonly PlannedArrival[], options: OpenLoopOptions): Promise<OpenLoopRecord> {
  const record: OpenLoopRecord = { requests: [], gaps: new LatencyHistogram(), latenessMs: new LatencyHistogram(), faults: [] };
  const cut = new AbortController();
  const open = new Set<Promise<void>>();
  const startedAt = performance.now();
  for (const [index, { atMs, promptTokens }] of arrivals.entries()) {
    const dueMs = startedAt + atMs - performance.now();
    if (dueMs > 0) await sleep(dueMs);
    record.latenessMs.observe(performance.now() - startedAt - atMs);
    if (options.clientsBound > 0 && open.size >= options.clientsBound) {
      record.requests[index] = neverServed('unsent', { atMs, promptTokens });
      continue;
    }
    const stream = options
      .send(index, cut.signal)
      .then(outcome => {
        record.requests[index] = servedRequest(outcome, { startedAt, promptTokens });
        takeGaps(outcome, record.gaps);
        if (record.requests[index].outcome === 'broken') record.faults.push(...outcome.faults);
      })
      .finally(() => open.delete(stream));
    open.add(stream);
    options.onProgress?.(index + 1, open.size);
  }
  const drained = new AbortController();
  const patience = sleep(options.drainMs, undefined, { signal: drained.signal })
    .then(() => cut.abort())
    .catch(() => undefined);
  while (open.size > 0) await Promise.all(open);
  drained.abort();
  await patience;
  return record;
}

/** Arrival is when it was sent, not when it was planned: the client's own lateness is told by itself. */
function servedRequest(outcome: StreamOutcome, { startedAt, promptTokens }: { startedAt: number; promptTokens: number }): ServedRequest {
  const { usage, chunkTimes, faults, isCut, status } = outcome;
  const atMs = outcome.startedAt - startedAt;
  if (status === 429 || status === 503) return neverServed('refused', { atMs, promptTokens });
  if (isCut) return neverServed('unfinished', { atMs, promptTokens });
  if (faults.length > 0 || usage === undefined) return neverServed('broken', { atMs, promptTokens });
  return {
    arrivedAt: atMs,
    promptTokens: usage.promptTokens,
    cachedTokens: usage.cachedTokens,
    completionTokens: usage.completionTokens,
    // An answer without any text ends as its first token would have come.
    firstTokenAt: (chunkTimes[0] ?? outcome.endedAt) - startedAt,
    lastTokenAt: (chunkTimes.at(-1) ?? outcome.endedAt) - startedAt,
    outcome: 'whole',
  };
}

function neverServed(outcome: ServedRequest['outcome'], { atMs, promptTokens }: PlannedArrival): ServedRequest {
  return { arrivedAt: atMs, promptTokens, cachedTokens: 0, completionTokens: 0, firstTokenAt: undefined, lastTokenAt: undefined, outcome };
}

function takeGaps({ chunkTimes }: StreamOutcome, gaps: LatencyHistogram): void {
  for (let index = 1; index < chunkTimes.length; index++) gaps.observe(chunkTimes[index]! - chunkTimes[index - 1]!);
}
