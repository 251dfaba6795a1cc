/**
 * StepMemory: what a step does to rows and blocks before it computes: saved, copied, loaded, given back, in the order that the plan relies on.
 * Saves may be left for the time in which the engine runs, where the plan does nothing else to memory and their rows are only appended to.
 */
import type { BlockCopy, Engine } from './engine/engine.ts';
import type { StepPlan } from './scheduler/step-plan.ts';

/** Returns the saves that are left: to be done before the step ends. */
export function prepareMemory(engine: Engine, plan: StepPlan): readonly BlockCopy[] {
  const { copies, loads, releases, releasedBlocks } = plan;
  const isOtherwiseIdle = copies.length + loads.length + releases.length + releasedBlocks.length === 0;
  const { left = [], due = [] } = Object.groupBy(plan.saves, copy =>
    isOtherwiseIdle && isOnlyAppendedTo(plan, copy, engine.shape.blockTokens) ? 'left' : 'due',
  );
  for (const copy of due) engine.saveBlocks(copy);
  for (const copy of copies) engine.copyRow(copy);
  for (const copy of loads) engine.loadBlocks(copy);
  for (const { row, fromToken } of releases) engine.releaseRow(row, fromToken);
  if (releasedBlocks.length > 0) engine.releaseBlocks(releasedBlocks);
  return left;
}

/** Nothing else is known of a row that is not in the step: it may be free, and then anybody's. */
function isOnlyAppendedTo({ chunks, decode }: StepPlan, copy: BlockCopy, blockTokens: number): boolean {
  const end = (copy.firstBlock + copy.blockIds.length) * blockTokens;
  const written = chunks.filter(chunk => chunk.row === copy.row).map(chunk => chunk.start);
  const entry = decode[copy.row];
  if (entry !== undefined) written.push(entry.position);
  return written.length > 0 && written.every(position => position >= end);
}
