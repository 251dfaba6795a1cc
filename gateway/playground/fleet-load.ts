/** FleetLoad: what all batchers together do now, as the operator sees it beside the conversation. */
import type { BatcherOut } from '../../shared/admin-wire.ts';

export interface FleetLoad {
  runningCount: number;
  waitingCount: number;
  rowCount: number;
  /** Of the KV caches, 0 to 1. */
  kvShare: number;
  /** Of all answers together, and the mean of one answer. */
  tokensPerSecond: number;
  requestTokensPerSecond: number;
  /** Of the model that is nearest to its knee, or farthest beyond: requests that come over those that can be sustained. */
  kneeRatio: number | undefined;
}

export function fleetLoad(batchers: readonly BatcherOut[], kneeRatios: readonly (number | null)[]): FleetLoad {
  const present = batchers.filter(({ state }) => state !== 'stale');
  const sum = (of: (batcher: BatcherOut) => number) => present.reduce((total, batcher) => total + of(batcher), 0);
  const runningCount = sum(batcher => batcher.running_count);
  const known = kneeRatios.filter(ratio => ratio !== null);
  return {
    runningCount,
    waitingCount: sum(batcher => batcher.waiting_count),
    rowCount: sum(batcher => batcher.max_running_count),
    kvShare:
      sum(batcher => batcher.kv_used_tokens) /
      Math.max(
        1,
        sum(batcher => batcher.kv_capacity_tokens),
      ),
    tokensPerSecond: sum(batcher => batcher.generated_tokens_per_second_now),
    requestTokensPerSecond: sum(batcher => batcher.request_tokens_per_second_now * batcher.running_count) / Math.max(1, runningCount),
    kneeRatio: known.length === 0 ? undefined : Math.max(...known),
  };
}

export function describeFleetLoad(load: FleetLoad): string {
  const parts = [
    `${load.runningCount} of ${load.rowCount} rows in use`,
    `${load.waitingCount} waiting in batchers`,
    `KV cache ${percent(load.kvShare)} full`,
    `${load.tokensPerSecond.toFixed(1)} tokens/s together, ${load.requestTokensPerSecond.toFixed(1)} each`,
  ];
  if (load.kneeRatio !== undefined) parts.push(`${percent(load.kneeRatio)} of the knee`);
  return `All clients: ${parts.join(', ')}`;
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}
