/**
 * QueueEstimate: how long a job still waits for its first token, told from its place, the batchers' measured rates, and how long this
 * model's prompts and answers have been of late. It says nothing before it has been measured.
 */
import type { ModelLoad } from './model-load.ts';
import type { Usage } from './token-event.ts';

interface Measured {
  /** Tokens of a prompt to the bound that was known of it at the edge. */
  promptShare: number | undefined;
  promptTokens: number | undefined;
  completionTokens: number | undefined;
}

/** Of the newest in a mean over the past. */
const WEIGHT = 0.1;
/** Models come and go with their batchers. */
const MAX_MODELS = 256;

export class QueueEstimate {
  readonly #models = new Map<string, Measured>();

  /** A prompt whose bound was known has been counted. */
  accepted(model: string, promptTokens: number, promptTokensBound: number): void {
    if (promptTokensBound <= 0) return;
    const measured = this.#of(model);
    measured.promptShare = mean(measured.promptShare, promptTokens / promptTokensBound);
  }

  finished(model: string, used: Usage): void {
    const measured = this.#of(model);
    measured.promptTokens = mean(measured.promptTokens, used.promptTokens);
    measured.completionTokens = mean(measured.completionTokens, used.completionTokens);
  }

  /** Of a request, as they have been of late; undefined before the first has ended. */
  meanTokens(model: string): { prompt: number; completion: number } | undefined {
    const { promptTokens, completionTokens } = this.#models.get(model) ?? {};
    return promptTokens === undefined || completionTokens === undefined
      ? undefined
      : { prompt: promptTokens, completion: completionTokens };
  }

  /**
   * Milliseconds from now; undefined while something that it takes is not known. `position` counts from 1, and `queuedPromptTokens` are
   * those of a job that waits, where more is known of them than how long prompts have been.
   */
  waitMs(
    job: { model: string; position: number; promptTokensBound: number; queuedPromptTokens?: number | undefined },
    load: ModelLoad,
  ): number | undefined {
    const measured = this.#models.get(job.model);
    if (measured === undefined || load.prefillTokensPerSecond <= 0) return undefined;
    const { promptShare = 1, completionTokens } = measured;
    const promptTokens = job.queuedPromptTokens ?? measured.promptTokens ?? 0;
    const queuedAhead = job.position - 1 + (load.ownQueueCount ?? 0);
    const ahead = queuedAhead + load.waitingCount;
    const heldTokens = load.waitingTokens ?? load.waitingCount * promptTokens;
    const prefillTokens = queuedAhead * promptTokens + heldTokens + job.promptTokensBound * promptShare;
    const prefillMs = (prefillTokens / load.prefillTokensPerSecond) * 1000;
    // As many must end as there are rows too few.
    const endsNeeded = Math.max(0, ahead + 1 - Math.max(0, load.maxRunningCount - load.runningCount));
    if (endsNeeded === 0) return prefillMs;
    if (completionTokens === undefined || load.decodeTokensPerSecond <= 0) return undefined;
    return prefillMs + ((endsNeeded * completionTokens) / load.decodeTokensPerSecond) * 1000;
  }

  #of(model: string): Measured {
    let measured = this.#models.get(model);
    if (measured === undefined) {
      measured = { promptShare: undefined, promptTokens: undefined, completionTokens: undefined };
      this.#models.set(model, measured);
      if (this.#models.size > MAX_MODELS) this.#models.delete(this.#models.keys().next().value!);
    }
    return measured;
  }
}

function mean(before: number | undefined, newest: number): number {
  return before === undefined ? newest : before + WEIGHT * (newest - before);
}
