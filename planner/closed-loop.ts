/** ClosedLoop: so many clients of one batcher, each sending its next request when its last is answered, in simulated time. */
import { LatencyHistogram } from './latency-histogram.ts';
import type { ServiceCurves } from './service-curves.ts';
import { SimulatedBatcher, type SimulatedRequest, type SimulatedSettings } from './simulated-batcher.ts';
import { SimulatedEngine } from './simulated-engine.ts';

export interface ClosedLoop {
  curves: Pick<ServiceCurves, 'decode' | 'prefill' | 'prefillPast' | 'copyMsPerToken' | 'path'>;
  settings: SimulatedSettings;
  /** No more than the batcher has rows, so that none waits in a queue. */
  clientCount: number;
  /** In the order in which they are sent; when they arrive is for the loop to say. */
  requests: readonly SimulatedRequest[];
}

export interface ClosedLoopRecord {
  /** From the first request to the last token at its client. */
  ms: number;
  prefillMs: number;
}

export function simulateClosedLoop({ curves, settings, clientCount, requests }: ClosedLoop): ClosedLoopRecord {
  const { arrivalMs, deliveryMs } = curves.path;
  const engine = new SimulatedEngine(curves, settings.maxRunning);
  const onTheWay: { at: number; request: SimulatedRequest }[] = [];
  let sentCount = 0;
  let endedAt = 0;
  const send = (now: number) => {
    const request = requests[sentCount];
    if (request === undefined) return;
    sentCount += 1;
    onTheWay.push({ at: now + arrivalMs, request: { ...request, arrivedAt: now } });
    // Of answers that end in one step, one that ends with its prefill chunk is earlier than those told before it.
    onTheWay.sort((a, b) => a.at - b.at);
  };
  const batcher = new SimulatedBatcher({
    ...{ engine, settings, deliveryMs, gaps: new LatencyHistogram() },
    onEnded({ lastTokenAt }) {
      endedAt = Math.max(endedAt, lastTokenAt!);
      send(lastTokenAt!);
    },
  });
  for (let client = 0; client < clientCount; client++) send(0);
  for (;;) {
    const next = onTheWay[0];
    if (next !== undefined && next.at <= batcher.nextAt) {
      onTheWay.shift();
      batcher.submit(next.request, next.at);
    } else if (Number.isFinite(batcher.nextAt)) batcher.advance();
    else return { ms: endedAt, prefillMs: batcher.use.prefillMs };
  }
}
