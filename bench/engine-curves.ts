/**
 * EngineCurves: a program of its own, so that its threads and its memory are gone when the product starts. Opens the engine, measures its service
 * curves, prints them as JSON; what it is at goes to stderr. Given curves, it prints the host's pace beside them instead.
 *
 *   node bench/engine-curves.ts '<{ engine, maxRunning, maxBatchedTokens, paceOf? } as JSON>'
 */
import { OrtEngine, type OrtEngineOptions } from '../batcher/engine/ort-engine.ts';
import { type EngineCurves, measureEngine, measurePace } from '../planner/curve-measurement.ts';

export interface CurvesTask {
  engine: OrtEngineOptions;
  maxRunning: number;
  maxBatchedTokens: number;
  paceOf?: EngineCurves;
}

if (import.meta.main) {
  const task = JSON.parse(process.argv[2] ?? '{}') as CurvesTask;
  const engine = new OrtEngine(task.engine);
  try {
    const measured = task.paceOf
      ? await measurePace(engine, task.paceOf)
      : await measureEngine(engine, { ...task, progress: line => process.stderr.write(`${line}\n`) });
    process.stdout.write(`${JSON.stringify(measured)}\n`);
  } finally {
    engine.close();
  }
}
