/**
 * EncoderLoop: takes the texts of the next run, runs them, tells their vectors, for ever. While the engine computes a run, the vectors of the
 * one before are sent. A run that fails ends the jobs that were in it, and no others.
 */
import type { Publisher } from '../publisher.ts';
import type { StepRates } from '../step-rates.ts';
import { WakeUp } from '../wake-up.ts';
import type { EmbeddingJob } from './embedding-job.ts';
import type { EncoderEngine } from './encoder-engine.ts';
import type { Run, RunBounds, TextQueue } from './text-queue.ts';

export interface EncoderLoopParts {
  engine: EncoderEngine;
  queue: TextQueue;
  publisher: Publisher<EmbeddingJob>;
  rates: StepRates;
  bounds: RunBounds;
  /** Vectors have the length 1, also when they are cut. */
  isNormalized: boolean;
  runFailed(jobs: readonly EmbeddingJob[], error: Error): void;
  onRun?(tokens: number): void;
}

export class EncoderLoop {
  readonly #parts: EncoderLoopParts;
  readonly #wakeUp = new WakeUp();
  #isStopped = false;
  #running: ReadonlySet<EmbeddingJob> = new Set();

  constructor(parts: EncoderLoopParts) {
    this.#parts = parts;
  }

  /** Jobs with texts in the run under way. */
  get runningCount(): number {
    return this.#running.size;
  }

  /** There may be something to do. */
  wake(): void {
    this.#wakeUp.call();
  }

  /** The run under way is the last. */
  stop(): void {
    this.#isStopped = true;
    this.wake();
  }

  /** Until stop. */
  async run(): Promise<void> {
    const { queue, bounds } = this.#parts;
    while (!this.#isStopped) {
      const run = queue.take(bounds);
      if (run.length > 0) await this.#runOnce(run);
      else await this.#wakeUp.sleep();
    }
  }

  async #runOnce(run: Run): Promise<void> {
    const { engine, publisher, rates, onRun } = this.#parts;
    const tokens = run.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
    const startedAt = performance.now();
    this.#running = new Set(run.map(({ job }) => job));
    try {
      const vectors = await engine.embed(run.map(({ tokenIds }) => tokenIds));
      rates.prefilled({ start: 0, tokens }, performance.now() - startedAt);
      onRun?.(tokens);
      this.#tell(run, vectors);
    } catch (error) {
      this.#parts.runFailed([...this.#running], error as Error);
    } finally {
      this.#running = new Set();
    }
    publisher.publish();
  }

  #tell(run: Run, vectors: Float32Array): void {
    const { width } = this.#parts.engine.shape;
    const byJob = Map.groupBy(run.keys(), row => run[row]!.job);
    for (const [job, rows] of byJob) {
      if (job.isOver) continue;
      const { task } = job.job;
      const dimensions = (task?.kind === 'embed' ? task.dimensions : undefined) ?? width;
      job.tell(
        rows.map(row => base64(this.#cut(vectors.subarray(row * width, (row + 1) * width), dimensions))),
        dimensions,
      );
    }
  }

  #cut(vector: Float32Array, dimensions: number): Float32Array {
    if (dimensions >= vector.length) return vector;
    const cut = vector.slice(0, dimensions);
    const length = Math.hypot(...cut);
    if (!this.#parts.isNormalized || length === 0) return cut;
    return cut.map(value => value / length);
  }
}

/** Every machine that onnxruntime runs on is little-endian. */
function base64(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64');
}
