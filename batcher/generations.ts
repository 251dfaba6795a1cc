/**
 * Generations: every job that this batcher holds, from the moment it is taken until it is settled. It checks what came from the queue, turns
 * the prompt into tokens, hands it to the scheduler, and answers each way out: finished, refused, cancelled, fenced, failed.
 */
import { ApiError, type ErrorCode, toApiError } from '../shared/errors.ts';
import { Job, type Prompt, promptsOf } from '../shared/job.ts';
import type { TokenEvent } from '../shared/token-event.ts';
import type { Choice } from './choice.ts';
import { Generation } from './generation.ts';
import { HeldJobs, readJob } from './held-jobs.ts';
import type { HeldPrefixes } from './held-prefixes.ts';
import type { Outbox, Standing } from './outbox.ts';
import type { BranchMaker, EncodedPrompt, PromptBranch } from './prompt-branch.ts';
import type { Publisher } from './publisher.ts';
import { Quarantine } from './quarantine.ts';
import type { TakenJob } from './queue-worker.ts';
import type { Reasoning } from './reasoning/reasoning-syntax.ts';
import type { Scheduler } from './scheduler/scheduler.ts';
import { RequestRefused } from './scheduler/sequence-request.ts';
import type { CompiledGrammar } from './structured/compiled-grammar.ts';
import { type AnswerForm, formOf } from './structured/reasoned-structure.ts';
import { callStructureOf } from './tools/job-calls.ts';
import type { ToolSyntax } from './tools/tool-format.ts';

export interface GenerationsOptions {
  scheduler: Scheduler;
  outbox: Pick<Outbox, 'claim'>;
  publisher: Publisher;
  /** Rendered and tokenized. Throws ApiError for what the model's template refuses. */
  encodePrompt(prompt: Prompt): readonly number[];
  branchMaker: BranchMaker;
  /** Throws ApiError for a structure that cannot be held to. */
  grammarOf(form: AnswerForm): Promise<CompiledGrammar>;
  /** How the model writes calls of functions. */
  toolSyntax: ToolSyntax;
  /** Of the answer to a prompt; absent for a model that never reasons apart. */
  reasoningOf?(prompt: EncodedPrompt): Reasoning | undefined;
  /** Whose text the KV store comes to hold. */
  prefixes?: Pick<HeldPrefixes, 'open' | 'close'> | undefined;
  contextTokens: number;
  /** A job over which so many holders died fails for good; one that cannot be started is tried as often. */
  maxAttempts: number;
  /** Whether seeded requests are computed in the reproducible way. */
  reproducible: boolean;
  /** Wanted time to first token where the request names none. */
  ttftSloMs: number | undefined;
  clock(): number;
  /** The loop has something to do. */
  wake(): void;
  /** Nothing more is sampled for the sequence. */
  onSequenceLeft?(sequenceId: string): void;
  /** Its terminal event is recorded. */
  onEnded?(generation: Generation): void;
  onError(error: Error, job: Pick<Job, 'id' | 'traceparent'>): void;
}

/** What a sequence of the scheduler is to the batcher. */
export interface Found {
  generation: Generation;
  branch: PromptBranch;
  choice: Choice;
}

export class Generations {
  readonly #options: GenerationsOptions;
  readonly #held: HeldJobs<Generation>;
  readonly #bySequence = new Map<string, Found>();
  readonly #quarantine: Quarantine<Generation>;

  constructor(options: GenerationsOptions) {
    this.#options = options;
    this.#quarantine = new Quarantine(() => options.publisher.publish());
    this.#held = new HeldJobs({
      publisher: options.publisher,
      cancel: generation => this.fail(generation, 'request_cancelled', 'The request was cancelled.'),
      onLetGo: generation => this.#letGo(generation),
      onLost: () => options.wake(),
      onEnded: generation => options.onEnded?.(generation),
      onError: (error, job) => options.onError(error, job),
    });
  }

  /** Jobs taken and not settled. */
  get count(): number {
    return this.#held.count;
  }

  /** Taken, and not yet with the scheduler. */
  get arrivingCount(): number {
    return this.#held.arrivingCount;
  }

  find(sequenceId: string): Found | undefined {
    return this.#bySequence.get(sequenceId);
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
  stands(generation: Generation, standing: Exclude<Standing, 'ok'>): void {
    this.#held.stands(generation, standing);
  }

  fail(generation: Generation, code: ErrorCode, message: string): void {
    this.#refuse(generation, new ApiError(code, message));
  }

  /** These events of it are recorded, and it goes on. */
  recorded(generation: Generation, events: readonly TokenEvent[]): void {
    this.#quarantine.recorded(generation, events);
  }

  /** Its terminal event is recorded: off the queue with it. */
  settled(generation: Generation): void {
    this.#held.settled(generation);
  }

  /** The engine's work for these sequences came to nothing. */
  runFailed(sequenceIds: readonly string[], error: Error): void {
    for (const sequenceId of sequenceIds) {
      const found = this.#bySequence.get(sequenceId);
      if (found === undefined || found.generation.isOver) continue;
      const { code, message } = toApiError(error);
      this.#options.onError(error, found.generation.job);
      const isOurs = code === 'internal_error';
      this.fail(found.generation, isOurs ? 'generation_failed' : code, isOurs ? 'The model could not be run for this request.' : message);
    }
  }

  /** All that is left goes back to the queue, for other batchers. */
  async giveBackAll(): Promise<void> {
    await this.#held.giveBackAll();
  }

  /** A job that could not even be started: another try may do better, but not for ever. */
  async #passOn(taken: TakenJob): Promise<void> {
    const job = Job.safeParse(taken.data).data;
    if (job === undefined || taken.attempt < this.#options.maxAttempts) {
      await taken.giveBack();
      return;
    }
    const generation = new Generation({ job, attempt: taken.attempt, clock: this.#options.clock });
    this.#hold(taken, generation);
    this.fail(generation, 'generation_failed', 'The request could not be started.');
  }

  async #start(taken: TakenJob): Promise<void> {
    const job = readJob(taken, this.#options.onError);
    if (job === undefined) {
      await taken.complete();
      return;
    }
    const generation = new Generation({ job, attempt: taken.attempt, clock: this.#options.clock });
    let refusal: ApiError | undefined;
    try {
      const prompts = promptsOf(job).map(prompt => this.#encoded(prompt));
      const form = formOf(callStructureOf(job, this.#options.toolSyntax) ?? job.structure, prompts[0]!.reasoning);
      const grammar = form && (await this.#options.grammarOf(form));
      generation.open(
        this.#options.branchMaker.branchesOf(job, generation.scheduleId, { prompts, grammar, contextTokens: this.#options.contextTokens }),
      );
    } catch (error) {
      refusal = toApiError(error);
    }
    if (taken.attempt > 1) {
      const { standing, events } = await this.#options.outbox.claim(generation.recipient);
      if (standing === 'fenced') return;
      generation.resume(events);
    }
    this.#hold(taken, generation);
    if (generation.isOver) {
      this.settled(generation);
      return;
    }
    this.#refusing(generation, () => {
      if (refusal !== undefined) throw refusal;
      const isSuspect = generation.deaths.mustRunApart({ deathCount: taken.deathCount, maxAttempts: this.#options.maxAttempts });
      for (const branch of generation.branches) this.#checkContext(job, branch);
      if (!isSuspect) return this.#run(generation);
      this.#quarantine.enter(generation, () => {
        this.#refusing(generation, () => this.#run(generation));
        this.#options.wake();
      });
    });
  }

  #encoded(prompt: Prompt): EncodedPrompt {
    const tokenIds = this.#options.encodePrompt(prompt);
    return { prompt, tokenIds, reasoning: this.#options.reasoningOf?.({ prompt, tokenIds }) };
  }

  #refusing(generation: Generation, step: () => void): void {
    try {
      step();
    } catch (error) {
      this.#refuse(generation, asRefusal(error, paramOf(generation.job)));
    }
  }

  #run(generation: Generation): void {
    for (const branch of generation.branches) this.#schedule(generation.job, branch);
    generation.accept();
    if (generation.isOver) this.#options.publisher.publish();
  }

  #refuse(generation: Generation, { code, message, param }: ApiError): void {
    for (const branch of generation.branches) this.#options.scheduler.cancel(branch.scheduleId);
    generation.fail(code, message, param);
    this.#options.publisher.publish();
  }

  #hold(taken: TakenJob, generation: Generation): void {
    for (const branch of generation.branches) {
      for (const choice of branch.choices) this.#bySequence.set(choice.sequenceId, { generation, branch, choice });
    }
    this.#held.hold(taken, generation);
  }

  #letGo(generation: Generation): void {
    this.#quarantine.left(generation);
    for (const { scheduleId, choices } of generation.branches) {
      this.#options.scheduler.cancel(scheduleId);
      this.#options.prefixes?.close(scheduleId);
      for (const { sequenceId } of choices) {
        this.#bySequence.delete(sequenceId);
        this.#options.onSequenceLeft?.(sequenceId);
      }
    }
  }

  #checkContext({ prompt, stopping }: Job, branch: PromptBranch): void {
    const promptTokens = branch.promptTokenIds.length;
    const { contextTokens } = this.#options;
    const param = paramOf({ prompt });
    // The last position of a prompt that is only scored is computed like one that goes on.
    const maxTokens = Math.max(1, stopping.maxTokens ?? 1);
    if (promptTokens + maxTokens <= contextTokens) return;
    throw new ApiError(
      'context_length_exceeded',
      `This model's maximum context length is ${contextTokens} tokens. The request has ${promptTokens} tokens in the ${param}` +
        (stopping.maxTokens === undefined ? '.' : ` and asks for ${maxTokens} more.`),
      { param },
    );
  }

  #schedule(job: Job, branch: PromptBranch): void {
    const open = branch.choices.filter(choice => choice.finishReason === undefined);
    if (open.length === 0) return;
    const resumeChoices = open.map(choice => choice.generatedTokenIds);
    const ttftSloMs = job.ttftSloMs ?? this.#options.ttftSloMs;
    this.#options.scheduler.add({
      id: branch.scheduleId,
      tenant: job.tenant,
      serviceClass: job.serviceClass,
      promptTokenIds: branch.promptTokenIds,
      maxNewTokens: Math.max(1, job.stopping.maxTokens ?? this.#options.contextTokens),
      arrivedAt: job.submittedAt,
      ttftDeadlineAt: ttftSloMs === undefined ? undefined : job.submittedAt + ttftSloMs,
      reproducible: this.#options.reproducible && job.sampling.seed !== undefined,
      speculation: job.speculation,
      scoresPrompt: branch.scoresPrompt,
      choiceIds: open.map(choice => choice.sequenceId),
      ...(resumeChoices.some(tokenIds => tokenIds.length > 0) && { resumeChoices }),
    });
    const { prompt, promptTokenIds } = branch;
    this.#options.prefixes?.open(branch.scheduleId, { tenant: job.tenant, prompt, promptTokenIds });
  }
}

function paramOf({ prompt }: Pick<Job, 'prompt'>): string {
  return prompt.kind === 'chat' ? 'messages' : 'prompt';
}

function asRefusal(error: unknown, param: string): ApiError {
  if (!(error instanceof RequestRefused)) return toApiError(error);
  switch (error.reason) {
    case 'context_exceeded':
    case 'kv_budget_exceeded':
      return new ApiError('context_length_exceeded', error.message, { param });
    case 'empty_prompt':
      return new ApiError('invalid_value', error.message, { param });
    case 'waiting_full':
      return new ApiError('queue_full', error.message);
    case 'nothing_to_generate':
    case 'invalid_request':
    case 'duplicate_id':
      return new ApiError('generation_failed', error.message);
  }
}
