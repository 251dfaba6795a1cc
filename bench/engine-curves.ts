/**
 * EngineCurves: a program of its own, so that its threads and its memory are gone when the product starts. Opens the engine, measures its service
 * curves, prints them as JSON; what it is at goes to stderr.
 *
 *   node bench/engine-curves.ts '<{ engine, maxRunning, maxBatchedTokens } as JSON>'
 */
import { OrtEngine, type OrtEngineOptions } from '../batcher/engine/ort-engine.ts';
import { measureEngine } from '../planner/curve-measurement.ts';

export interface CurvesTask {
  engine: OrtEngineOptions;
  maxRunning: number;
  maxBatchedTokens: number;
}

if (import.meta.main) {
  const task = JSON.parse(process.argv[2] ?? '{}') as CurvesTask;
  const engine = new OrtEngine(task.engine);
  try {
    const curves = await measureEngine(engine, { ...task, progress: line => process.stderr.write(`${line}\n`) });
    process.stdout.write(`${JSON.stringify(curves)}\n`);
  } finally {
    engine.close();
  }
}
