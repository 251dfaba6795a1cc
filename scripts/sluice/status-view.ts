/** StatusView: what the gateway tells of its models, batchers and queues, as tables for people. */
import type { BatcherOut, QueueOut } from '../../shared/admin-wire.ts';
import { table } from './table.ts';

export interface Status {
  url: string;
  batchers: readonly BatcherOut[];
  queues: readonly QueueOut[];
}

export interface ModelStatus {
  model: string;
  batcherCount: number;
  runningCount: number;
  maxRunningCount: number;
  waitingCount: number;
  /** In all queues of the model. */
  queuedCount: number;
  /** Now, all requests together. */
  promptTokensPerSecond: number;
  generatedTokensPerSecond: number;
  /** Now, of one answer: on average over the batchers that answer. */
  requestTokensPerSecond: number;
}

export function modelsOf({ batchers, queues }: Omit<Status, 'url'>): ModelStatus[] {
  const names = [...new Set([...batchers, ...queues].map(({ model }) => model))].sort();
  return names.map(model => {
    const serving = batchers.filter(batcher => batcher.model === model && batcher.state !== 'stale');
    const sum = (of: (batcher: BatcherOut) => number) => serving.reduce((total, batcher) => total + of(batcher), 0);
    const answering = serving.filter(batcher => batcher.request_tokens_per_second_now > 0);
    return {
      model,
      batcherCount: serving.length,
      runningCount: sum(batcher => batcher.running_count),
      maxRunningCount: sum(batcher => batcher.max_running_count),
      waitingCount: sum(batcher => batcher.waiting_count),
      queuedCount: queues.filter(queue => queue.model === model).reduce((total, queue) => total + queue.waiting_count, 0),
      promptTokensPerSecond: sum(batcher => batcher.prompt_tokens_per_second_now),
      generatedTokensPerSecond: sum(batcher => batcher.generated_tokens_per_second_now),
      requestTokensPerSecond:
        answering.reduce((total, batcher) => total + batcher.request_tokens_per_second_now, 0) / Math.max(1, answering.length),
    };
  });
}

export function statusText(status: Status): string {
  const models = modelsOf(status).map(one => [
    one.model,
    one.batcherCount,
    `${one.runningCount}/${one.maxRunningCount}`,
    one.waitingCount,
    one.queuedCount,
    rate(one.promptTokensPerSecond),
    rate(one.generatedTokensPerSecond),
    rate(one.requestTokensPerSecond),
  ]);
  const batchers = status.batchers.map(one => [
    one.id,
    one.model,
    one.state,
    `${one.running_count}/${one.max_running_count}`,
    one.waiting_count,
    status.queues.find(queue => queue.batcher_id === one.id)?.waiting_count ?? null,
    one.kv_capacity_tokens === 0 ? null : `${((100 * one.kv_used_tokens) / one.kv_capacity_tokens).toFixed(1)}%`,
    rate(one.generated_tokens_per_second_now),
    rate(one.request_tokens_per_second_now),
  ]);
  return [
    table(['MODEL', 'BATCHERS', 'RUNNING', 'WAITING', 'QUEUED', 'PROMPT TOK/S', 'ANSWER TOK/S', 'A REQUEST'], models, 'No models.'),
    table(['BATCHER', 'MODEL', 'STATE', 'RUNNING', 'WAITING', 'OWN QUEUE', 'KV', 'ANSWER TOK/S', 'A REQUEST'], batchers, 'No batchers.'),
  ].join('\n\n');
}

function rate(perSecond: number): number {
  return Number(perSecond.toFixed(1));
}
