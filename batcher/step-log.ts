/**
 * StepLog: what each step computed and how long it took, a line of JSON a step, for whoever wants to know where a batcher's time goes. It never holds up
 * the batcher: past a bound on what is not written yet lines are dropped, and the next one says how many.
 */
import { once } from 'node:events';
import { createWriteStream, type WriteStream } from 'node:fs';
import type { StepTimes } from './loop.ts';
import { copiedTokens, type StepPlan } from './scheduler/step-plan.ts';

/** Names are those of the file's fields. */
export interface StepRecord {
  /** Epoch milliseconds, of its end. */
  at: number;
  /** From its plan to its commit; `engineMs` of that in the engine's runs. */
  stepMs: number;
  engineMs: number;
  /** One entry a chunk: tokens from position `start` on, and the time of its run. */
  chunks: { start: number; tokens: number; ms: number; isVerification: boolean }[];
  /** Of the decode run: rows, and the tokens before them, all rows together. */
  rows: number;
  contextTokens: number;
  admitted: number;
  /** Keys and values that were copied between rows and from and to the prefix store. */
  copiedTokens: number;
  /** Steps before it of which nothing was written. */
  dropped: number;
}

const BUFFERED_BYTES = 1 << 20;

export class StepLog {
  readonly #stream: WriteStream;
  readonly #blockTokens: number;
  #dropped = 0;
  #isBroken = false;

  /** Throws where the file cannot be written. */
  static async open(path: string, blockTokens: number): Promise<StepLog> {
    const stream = createWriteStream(path, { flags: 'a' });
    await once(stream, 'open');
    return new StepLog(stream, blockTokens);
  }

  private constructor(stream: WriteStream, blockTokens: number) {
    this.#stream = stream;
    this.#blockTokens = blockTokens;
    // A full disk costs the log, not the answers.
    stream.on('error', () => {
      this.#isBroken = true;
    });
  }

  add(plan: StepPlan, times: StepTimes): void {
    if (this.#isBroken) return;
    if (this.#stream.writableLength > BUFFERED_BYTES) {
      this.#dropped += 1;
      return;
    }
    this.#stream.write(`${JSON.stringify(this.#record(plan, times))}\n`);
    this.#dropped = 0;
  }

  async close(): Promise<void> {
    if (this.#isBroken) return;
    await new Promise<void>(resolve => this.#stream.end(resolve));
  }

  #record(plan: StepPlan, { stepMs, engineMs, chunkMs }: StepTimes): StepRecord {
    return {
      ...{ at: Date.now(), stepMs, engineMs },
      chunks: plan.chunks.map(({ start, tokenIds, purpose }, index) => ({
        ...{ start, tokens: tokenIds.length, ms: chunkMs[index] ?? 0, isVerification: purpose === 'verify' },
      })),
      rows: plan.decode.length,
      contextTokens: plan.decode.reduce((sum, { position }) => sum + position, 0),
      admitted: plan.admitted.length,
      copiedTokens: copiedTokens(plan, this.#blockTokens),
      dropped: this.#dropped,
    };
  }
}
