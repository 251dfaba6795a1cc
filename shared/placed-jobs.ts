/** PlacedJobs: how long those jobs are, on average, that were given a place and are not over; each model's for itself. */

export interface JobLength {
  /** Expected, prompts and answers together. */
  tokens: number;
  promptTokens: number;
}

interface Sum extends JobLength {
  jobs: Map<string, JobLength>;
}

export class PlacedJobs {
  readonly #models = new Map<string, Sum>();

  add(model: string, id: string, length: JobLength): void {
    this.remove(model, id);
    const sum = this.#models.get(model) ?? { jobs: new Map(), tokens: 0, promptTokens: 0 };
    sum.jobs.set(id, length);
    sum.tokens += length.tokens;
    sum.promptTokens += length.promptTokens;
    this.#models.set(model, sum);
  }

  /** One that is not there is left alone. */
  remove(model: string, id: string): void {
    const sum = this.#models.get(model);
    const length = sum?.jobs.get(id);
    if (sum === undefined || length === undefined) return;
    sum.jobs.delete(id);
    sum.tokens -= length.tokens;
    sum.promptTokens -= length.promptTokens;
    if (sum.jobs.size === 0) this.#models.delete(model);
  }

  /** Undefined where there is none. */
  mean(model: string): JobLength | undefined {
    const sum = this.#models.get(model);
    return sum && { tokens: sum.tokens / sum.jobs.size, promptTokens: sum.promptTokens / sum.jobs.size };
  }
}
