/** StepMemory: what a step does to rows and blocks before it computes: saved, copied, loaded, given back, in the order that the plan relies on. */
import type { Engine } from './engine/engine.ts';
import type { StepPlan } from './scheduler/step-plan.ts';

export function prepareMemory(engine: Engine, plan: StepPlan): void {
  for (const copy of plan.saves) engine.saveBlocks(copy);
  for (const copy of plan.copies) engine.copyRow(copy);
  for (const copy of plan.loads) engine.loadBlocks(copy);
  for (const { row, fromToken } of plan.releases) engine.releaseRow(row, fromToken);
  if (plan.releasedBlocks.length > 0) engine.releaseBlocks(plan.releasedBlocks);
}
