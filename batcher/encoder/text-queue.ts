/**
 * TextQueue: which texts of which jobs go into the next run: those of a higher class first, and within a class one of each tenant in turn,
 * and of a tenant's jobs one of each in turn; so that a job of thousands of texts holds up nobody. A job's texts are taken in order.
 */
import { SERVICE_CLASSES, type ServiceClass } from '../../shared/job.ts';
import type { EmbeddingJob } from './embedding-job.ts';

export interface RunBounds {
  /** Of all texts together; one that is longer goes alone. */
  tokens: number;
  /** Texts times the longest of them: what attention computes, padding included. */
  places: number;
}

/** Texts of one run, in the order in which they were taken. */
export type Run = readonly { job: EmbeddingJob; tokenIds: readonly number[] }[];

export class TextQueue {
  /** By class, then by tenant; who comes first is next. */
  readonly #lanes = new Map<ServiceClass, Map<string, EmbeddingJob[]>>(SERVICE_CLASSES.map(name => [name, new Map()]));
  #pendingTokens = 0;
  #jobCount = 0;

  /** Of all texts that are not yet taken. */
  get pendingTokens(): number {
    return this.#pendingTokens;
  }

  /** Jobs with such texts. */
  get jobCount(): number {
    return this.#jobCount;
  }

  /** Tenants with such jobs. */
  get tenantCount(): number {
    return new Set([...this.#lanes.values()].flatMap(lane => [...lane.keys()])).size;
  }

  add(job: EmbeddingJob): void {
    if (job.next === undefined) return;
    const lane = this.#laneOf(job);
    lane.set(job.job.tenant, [...(lane.get(job.job.tenant) ?? []), job]);
    this.#pendingTokens += job.pendingTokens;
    this.#jobCount++;
  }

  /** What is left of it is not to be taken; before it is over. */
  remove(job: EmbeddingJob): void {
    const lane = this.#laneOf(job);
    const jobs = lane.get(job.job.tenant);
    if (jobs === undefined || !jobs.includes(job)) return;
    this.#pendingTokens -= job.pendingTokens;
    this.#jobCount--;
    this.#put(
      lane,
      job.job.tenant,
      jobs.filter(other => other !== job),
    );
  }

  /** The texts of the next run, which are taken; empty when there are none. */
  take(bounds: RunBounds): Run {
    const run: { job: EmbeddingJob; tokenIds: readonly number[] }[] = [];
    let tokens = 0;
    let longest = 0;
    for (const lane of this.#lanes.values()) {
      while (lane.size > 0) {
        const [tenant, [job, ...others]] = lane.entries().next().value as [string, [EmbeddingJob, ...EmbeddingJob[]]];
        const tokenIds = job.next!;
        longest = Math.max(longest, tokenIds.length);
        const isFull = tokens + tokenIds.length > bounds.tokens || (run.length + 1) * longest > bounds.places;
        if (run.length > 0 && isFull) return run;
        job.take();
        run.push({ job, tokenIds });
        tokens += tokenIds.length;
        this.#pendingTokens -= tokenIds.length;
        const isThrough = job.next === undefined;
        if (isThrough) this.#jobCount--;
        this.#put(lane, tenant, isThrough ? others : [...others, job]);
      }
    }
    return run;
  }

  /** Behind all others of its lane. */
  #put(lane: Map<string, EmbeddingJob[]>, tenant: string, jobs: EmbeddingJob[]): void {
    lane.delete(tenant);
    if (jobs.length > 0) lane.set(tenant, jobs);
  }

  #laneOf({ job }: EmbeddingJob): Map<string, EmbeddingJob[]> {
    return this.#lanes.get(job.serviceClass)!;
  }
}
