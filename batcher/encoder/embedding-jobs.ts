/**
 * EmbeddingJobs: every job that this batcher holds, from the moment it is taken until it is settled. It checks what came from the queue, turns
 * the texts into tokens, queues them, and answers each way out: finished, refused, cancelled, fenced, failed.
 */
import { ApiError, type ErrorCode, toApiError } from '../../shared/errors.ts';
import { Job, type Prompt, promptsOf } from '../../shared/job.ts';
import type { TokenEvent } from '../../shared/token-event.ts';
import { HeldJobs, readJob } from '../held-jobs.ts';
import type { WordPiece } from '../model/word-piece.ts';
import type { Outbox, Standing } from '../outbox.ts';
import type { Publisher } from '../publisher.ts';
import { Quarantine } from '../quarantine.ts';
import type { TakenJob } from '../queue-worker.ts';
import { EmbeddingJob } from './embedding-job.ts';
import type { TextQueue } from './text-queue.ts';

export interface EmbeddingJobsOptions {
  queue: TextQueue;
  outbox: Pick<Outbox, 'claim'>;
  publisher: Publisher<EmbeddingJob>;
  tokenizer: WordPiece;
  /** Longest text, what stands around it included. */
  contextTokens: number;
  /** Numbers of a vector. */
  width: number;
  /** A job over which so many holders died fails for good; one that cannot be started is tried as often. */
  maxAttempts: number;
  clock(): number;
  /** There is something to embed. */
  wake(): void;
  /** Its terminal event is recorded. */
  onEnded?(job: EmbeddingJob): void;
  onError(error: Error, job: Pick<Job, 'id' | 'traceparent'>): void;
}

const MAX_HELD = 64;
/** Minutes of work: beyond them nothing is taken, so that others may take it. */
const MAX_PENDING_TOKENS = 1_000_000;
/** A longer text has more tokens than any model here takes, or is not worth to be looked through for what it has. */
const CHARACTERS_PER_TOKEN = 64;
/**
 * Of a job of no more it is not told apart that it was taken, which costs Redis, gateway and batcher as much as telling of its vectors: it is told with
 * them, or with those of the run before its own.
 */
const SMALL_TOKENS = 512;
/** Tokenizing goes on for so long before others get their turn. */
const SLICE_MS = 5;

export class EmbeddingJobs {
  readonly #options: EmbeddingJobsOptions;
  readonly #held: HeldJobs<EmbeddingJob>;
  readonly #quarantine: Quarantine<EmbeddingJob>;

  constructor(options: EmbeddingJobsOptions) {
    this.#options = options;
    this.#quarantine = new Quarantine(() => options.publisher.publish());
    this.#held = new HeldJobs({
      publisher: options.publisher,
      cancel: job => this.fail(job, 'request_cancelled', 'The request was cancelled.'),
      onLetGo: job => {
        options.queue.remove(job);
        this.#quarantine.left(job);
      },
      onEnded: job => options.onEnded?.(job),
      onError: (error, job) => options.onError(error, job),
    });
  }

  /** Jobs taken and not settled. */
  get count(): number {
    return this.#held.count;
  }

  get hasRoom(): boolean {
    return this.count < MAX_HELD && this.#options.queue.pendingTokens < MAX_PENDING_TOKENS;
  }

  async submit(taken: TakenJob): Promise<void> {
    const { wake } = this.#options;
    await this.#held.arrive(taken, { start: () => this.#start(taken), passOn: () => this.#passOn(taken), wake });
  }

  /** Somebody else has the job: no more is said of it here. */
  lost(jobId: string): void {
    this.#held.lost(jobId);
  }

  /** What Redis says of a job that is not simply to go on. */
  stands(job: EmbeddingJob, standing: Exclude<Standing, 'ok'>): void {
    this.#held.stands(job, standing);
  }

  fail(job: EmbeddingJob, code: ErrorCode, message: string, param?: string): void {
    this.#options.queue.remove(job);
    job.fail(code, message, param);
    this.#options.publisher.publish();
  }

  /** These events of a job are recorded. */
  recorded(job: EmbeddingJob, events: readonly TokenEvent[]): void {
    this.#quarantine.recorded(job, events);
  }

  /** Its terminal event is recorded: off the queue with it. */
  settled(job: EmbeddingJob): void {
    this.#held.settled(job);
  }

  /** All that is left goes back to the queue, for other batchers. */
  async giveBackAll(): Promise<void> {
    await this.#held.giveBackAll();
  }

  /** A job that could not even be started: another try may do better, but not for ever. */
  async #passOn(taken: TakenJob): Promise<void> {
    const job = Job.safeParse(taken.data).data;
    if (job === undefined || taken.attempt < this.#options.maxAttempts) return await taken.giveBack();
    const failed = new EmbeddingJob({ job, attempt: taken.attempt, clock: this.#options.clock });
    this.#held.hold(taken, failed);
    this.fail(failed, 'generation_failed', 'The request could not be started.');
  }

  async #start(taken: TakenJob): Promise<void> {
    const read = readJob(taken, this.#options.onError);
    if (read === undefined) return await taken.complete();
    const job = new EmbeddingJob({ job: read, attempt: taken.attempt, clock: this.#options.clock });
    let refusal: ApiError | undefined;
    try {
      this.#check(read);
      job.open(await this.#encodeAll(read));
    } catch (error) {
      refusal = toApiError(error);
    }
    if (taken.attempt > 1) {
      const { standing, events } = await this.#options.outbox.claim(job.recipient);
      if (standing === 'fenced') return;
      job.resume(events);
    }
    this.#held.hold(taken, job);
    if (job.isOver) return this.settled(job);
    try {
      if (refusal !== undefined) throw refusal;
      const isSuspect = job.deaths.mustRunApart({ deathCount: taken.deathCount, maxAttempts: this.#options.maxAttempts });
      if (!isSuspect) return this.#run(job);
    } catch (error) {
      return this.#refuse(job, toApiError(error));
    }
    this.#quarantine.enter(job, () => {
      this.#run(job);
      this.#options.wake();
    });
  }

  #refuse(job: EmbeddingJob, { code, message, param, cause }: ApiError): void {
    if (cause !== undefined) this.#options.onError(cause as Error, job.job);
    this.fail(job, code === 'internal_error' ? 'generation_failed' : code, message, param);
  }

  #run(job: EmbeddingJob): void {
    job.accept();
    const isSmall = !job.isOver && job.pendingTokens <= SMALL_TOKENS;
    this.#options.queue.add(job);
    if (!isSmall) this.#options.publisher.publish();
  }

  #check({ task }: Job): void {
    const { width } = this.#options;
    if (task?.kind !== 'embed') throw new ApiError('invalid_value', 'This model makes embeddings and nothing else.', { param: 'model' });
    if (task.dimensions !== undefined && task.dimensions > width) {
      throw new ApiError('invalid_value', `Invalid value for 'dimensions': this model's vectors have ${width} numbers.`, {
        param: 'dimensions',
      });
    }
  }

  async #encodeAll(job: Job): Promise<(readonly number[])[]> {
    const prompts = promptsOf(job);
    const texts: (readonly number[])[] = [];
    let since = performance.now();
    for (const [index, prompt] of prompts.entries()) {
      texts.push(this.#encode(prompt, prompts.length === 1 ? 'input' : `input[${index}]`, job));
      if (performance.now() - since < SLICE_MS) continue;
      await new Promise(resolve => setImmediate(resolve));
      since = performance.now();
    }
    return texts;
  }

  #encode(prompt: Prompt, param: string, { task }: Job): readonly number[] {
    const { tokenizer, contextTokens } = this.#options;
    const asked = task?.kind === 'embed' ? task.truncateTokens : undefined;
    const most = Math.min(asked ?? contextTokens, contextTokens);
    if (prompt.kind === 'chat') throw new ApiError('invalid_value', 'An embedding is made of a text.', { param });
    if (prompt.kind === 'tokens') {
      const outside = prompt.tokenIds.find(id => id >= tokenizer.size);
      if (outside !== undefined) {
        throw new ApiError('invalid_value', `There is no token ${outside}; this model's ids end at ${tokenizer.size - 1}.`, { param });
      }
    }
    const isCut = prompt.kind === 'text' && prompt.text.length > contextTokens * CHARACTERS_PER_TOKEN;
    const tokenIds =
      prompt.kind === 'tokens'
        ? prompt.tokenIds
        : tokenizer.encode(prompt.text.slice(0, contextTokens * CHARACTERS_PER_TOKEN), { most: contextTokens });
    if (tokenIds.length === 0) throw new ApiError('invalid_value', 'The input is empty.', { param });
    if (asked !== undefined) return prompt.kind === 'tokens' ? tokenIds.slice(0, most) : tokenizer.truncated(tokenIds, most);
    if (tokenIds.length <= contextTokens && !isCut) return tokenIds;
    throw new ApiError(
      'context_length_exceeded',
      `This model's maximum context length is ${contextTokens} tokens. The text in ${param} has more; shorten it, or set 'truncate_prompt_tokens'.`,
      { param },
    );
  }
}
