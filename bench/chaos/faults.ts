/**
 * Faults: what a chaos run does to the product, each a thing that happens to real installations. A fault ends when its cause has gone; what it
 * broke may still be on its way back.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Stack } from '../stack.ts';

export interface FaultTools {
  stack: Stack;
  /** A number in [0, 1), the next of the run's seed. */
  random(): number;
}

interface Fault {
  /** As the report has it. */
  what: string;
  happen(tools: FaultTools): Promise<void>;
}

/** Longer than the lock of a job, so that others take over what the frozen one holds. */
const FREEZE_MS = { least: 2_500, most: 6_000 };
const OUTAGE_MS = { least: 1_000, most: 10_000 };
const DRAIN_PATIENCE_MS = 60_000;
const POLL_MS = 50;

export const FAULTS = {
  'batcher-kill': {
    what: 'a batcher killed (SIGKILL)',
    happen: async ({ stack, random }) => {
      signalOne(stack.batcherPids, 'SIGKILL', random);
    },
  },
  'batchers-kill': {
    what: 'all batchers killed at once',
    happen: async ({ stack }) => {
      for (const pid of stack.batcherPids) signal(pid, 'SIGKILL');
    },
  },
  'batcher-freeze': {
    what: 'a batcher frozen past its lock, then going on',
    happen: async ({ stack, random }) => {
      const pid = signalOne(stack.batcherPids, 'SIGSTOP', random);
      await sleep(between(FREEZE_MS, random()));
      signal(pid, 'SIGCONT');
    },
  },
  'batcher-drain': {
    what: 'a batcher drained (SIGTERM) and started again',
    happen: async ({ stack, random }) => {
      const count = stack.batcherPids.length;
      signalOne(stack.batcherPids, 'SIGTERM', random);
      const giveUpAt = Date.now() + DRAIN_PATIENCE_MS;
      while (stack.batcherPids.length === count && Date.now() < giveUpAt) await sleep(POLL_MS);
      stack.restartDrained();
    },
  },
  'redis-cut': {
    what: 'every connection to Redis cut (CLIENT KILL)',
    happen: ({ stack }) =>
      onRedis(stack, async redis => {
        for (const type of ['normal', 'pubsub']) await redis.call('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes');
      }),
  },
  'redis-flush-scripts': {
    what: 'scripts of Redis flushed',
    happen: ({ stack }) => onRedis(stack, redis => redis.script('FLUSH')),
  },
  'redis-restart': { what: 'Redis restarted (SIGTERM)', happen: async ({ stack }) => signal(stack.redisPid(), 'SIGTERM') },
  'redis-kill': { what: 'Redis killed (SIGKILL)', happen: async ({ stack }) => signal(stack.redisPid(), 'SIGKILL') },
  'redis-outage': {
    what: 'Redis silent for up to 10 s',
    happen: async ({ stack, random }) => {
      const pid = stack.redisPid();
      signal(pid, 'SIGSTOP');
      await sleep(between(OUTAGE_MS, random()));
      signal(pid, 'SIGCONT');
    },
  },
  'redis-full': {
    what: 'Redis at its memory limit (noeviction)',
    happen: ({ stack, random }) =>
      onRedis(stack, async redis => {
        await redis.config('SET', 'maxmemory', '1');
        await sleep(between(FREEZE_MS, random()));
        await redis.config('SET', 'maxmemory', '0');
      }),
  },
  'gateway-kill': { what: 'the gateway killed (SIGKILL)', happen: async ({ stack }) => signal(stack.gatewayPid(), 'SIGKILL') },
} as const satisfies Record<string, Fault>;

export type FaultName = keyof typeof FAULTS;
export const FAULT_NAMES = Object.keys(FAULTS) as FaultName[];

/** Each kind once, in an order that depends on the seed; then again in another. */
export function* faultOrder(names: readonly FaultName[], random: () => number): Generator<FaultName> {
  for (;;) {
    const left = [...names];
    while (left.length > 0) yield left.splice(Math.floor(random() * left.length), 1)[0]!;
  }
}

function between({ least, most }: { least: number; most: number }, share: number): number {
  return least + share * (most - least);
}

function signalOne(pids: readonly number[], name: NodeJS.Signals, random: () => number): number | undefined {
  const pid = pids[Math.floor(random() * pids.length)];
  signal(pid, name);
  return pid;
}

/** Who has gone by itself in the meantime is as good as signalled. */
function signal(pid: number | undefined, name: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

async function onRedis(stack: Stack, work: (redis: Redis) => Promise<unknown>): Promise<void> {
  const redis = new Redis(stack.redisUrl, { maxRetriesPerRequest: null });
  redis.on('error', () => undefined);
  try {
    await work(redis);
  } finally {
    redis.disconnect();
  }
}
