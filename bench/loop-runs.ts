/** LoopRuns: loop workloads one after the other, each in a process of its own, with one Redis for their events; gone with it at the end. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureRedisBinary } from '../scripts/supervisor/redis-binary.ts';
import { startRedisServer } from '../scripts/supervisor/redis-server.ts';
import type { Children } from './children.ts';
import type { LoopPlan, LoopTimes } from './loop-workload.ts';

export interface LoopRun {
  /** Told before it starts. */
  name: string;
  plan: LoopPlan;
}

/** In the order of the runs. */
export async function runLoops(
  runs: readonly LoopRun[],
  { progress, children }: { progress: (line: string) => void; children: Children },
): Promise<LoopTimes[]> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-'));
  const redis = await startRedisServer({
    binary: await ensureRedisBinary(progress),
    folder,
    onCrash: report => progress(`redis ended (${report.how})`),
  });
  let closing: Promise<void> | undefined;
  const close = () => {
    closing ??= redis.child.stop().then(() => rm(folder, { recursive: true, force: true }));
    return closing;
  };
  children.adopt(close);
  try {
    const program = new URL('./loop-workload.ts', import.meta.url).pathname;
    const results: LoopTimes[] = [];
    for (const { name, plan } of runs) {
      progress(name);
      const { stdout } = await children.run(process.execPath, [program, JSON.stringify(plan)], {
        env: { ...process.env, REDIS_URL: redis.url },
      });
      results.push(JSON.parse(stdout) as LoopTimes);
    }
    return results;
  } finally {
    await close();
  }
}
