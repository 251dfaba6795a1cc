/**
 * QuietSteps: steps in a row that would do nothing but give every running sequence its next token and end none, as long as nothing comes. Whoever
 * simulates can take them at once.
 * Guarantee: taking n of them leaves everything as n plans and commits would.
 */
import type { KvCache } from '../kv/kv-cache.ts';
import type { RunningSet } from './running-set.ts';
import type { SchedulerSettings } from './scheduler-settings.ts';
import type { WaitingQueue } from './waiting-queue.ts';

export interface QuietParts {
  settings: SchedulerSettings;
  kv: KvCache;
  running: RunningSet;
  waiting: WaitingQueue;
}

/** 0 when the next step may do anything else. */
export function quietSteps({ settings, kv, running, waiting }: QuietParts): number {
  if (running.count === 0) return 0;
  // Nobody is admitted while all rows are taken, whoever waits.
  if (waiting.size > 0 && running.claimedRowCount < settings.maxRunning) return 0;
  let steps = Number.POSITIVE_INFINITY;
  for (const sequence of running) {
    const isPlain =
      !sequence.isPrefilling &&
      !sequence.hasUnsavedPrefill &&
      sequence.uncomputedCount === 1 &&
      sequence.drafts.length === 0 &&
      sequence.row! < running.count;
    if (!isPlain) return 0;
    steps = Math.min(steps, sequence.knownLimit - sequence.knownCount - 1);
  }
  return mostThatFit(steps, { kv, running });
}

/** Each sequence gets tokens of one id, which nothing looks at but the prefix store. */
export function takeQuietSteps(steps: number, { kv, running, waiting }: QuietParts, tokenIdOf: (sequenceId: string) => number): void {
  for (const sequence of running) {
    kv.growRow(sequence.row!, kv.blocksFor(sequence.computedCount + steps));
    sequence.append(new Array<number>(steps).fill(tokenIdOf(sequence.id)));
    sequence.completeDecode(steps);
    waiting.charge(sequence, steps);
  }
}

/** Before somebody would have to give way. */
function mostThatFit(steps: number, { kv, running }: Pick<QuietParts, 'kv' | 'running'>): number {
  const wantedBlocks = (count: number) => {
    let blocks = 0;
    for (const sequence of running) blocks += Math.max(0, kv.blocksFor(sequence.computedCount + count) - kv.heldBlocks(sequence.row!));
    return blocks;
  };
  if (steps <= 0 || wantedBlocks(steps) <= kv.roomBlocks) return Math.max(0, steps);
  let [most, tooMany] = [0, steps];
  while (tooMany - most > 1) {
    const half = (most + tooMany) >>> 1;
    if (wantedBlocks(half) <= kv.roomBlocks) most = half;
    else tooMany = half;
  }
  return most;
}
