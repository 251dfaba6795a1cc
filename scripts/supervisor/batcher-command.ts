/** BatcherCommand: how one batcher process is started; secrets go by the environment, which only its owner can read. */
import { createHash } from 'node:crypto';
import { availableParallelism, hostname } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const PROJECT = join(import.meta.dirname, '..', '..');
const PRELOAD = pathToFileURL(join(import.meta.dirname, 'end-with-parent.ts')).href;

export interface BatcherPlan {
  /** From 1. */
  number: number;
  batcherCount: number;
  modelFolder: string;
  dataFolder: string;
  redisUrl: string;
  /** As given to the start; they win over what is chosen here. */
  arguments: readonly string[];
  /** Time that running requests get after SIGTERM. */
  drainMs: number;
}

export function batcherCommand(plan: BatcherPlan): { command: string[]; environment: NodeJS.ProcessEnv } {
  const threads = Math.max(1, Math.floor(availableParallelism() / plan.batcherCount));
  return {
    command: [
      process.execPath,
      '--import',
      PRELOAD,
      join(PROJECT, 'batcher', 'main.ts'),
      ...['--model-dir', plan.modelFolder],
      ...['--batcher-id', batcherId(plan)],
      ...['--threads', String(threads)],
      ...['--drain-timeout-ms', String(plan.drainMs)],
      ...plan.arguments,
    ],
    environment: { REDIS_URL: plan.redisUrl },
  };
}

/** The same at every start, and no other's, though several hosts and installations share one Redis. */
function batcherId({ dataFolder, number }: BatcherPlan): string {
  const host =
    hostname()
      .toLowerCase()
      .replace(/[^a-z0-9-]/g, '-')
      .slice(0, 40) || 'host';
  const installation = createHash('sha256').update(dataFolder).digest('hex').slice(0, 6);
  return `${host}-${installation}-${number}`;
}
