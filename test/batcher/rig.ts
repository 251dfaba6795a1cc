/** Rig: loop, scheduler, generations and publisher joined as in the batcher, over the fake engine and a record in memory; no weights, no Redis. */
import type { Generation } from '../../batcher/generation.ts';
import { Generations } from '../../batcher/generations.ts';
import { HeldPrefixes } from '../../batcher/held-prefixes.ts';
import { KvCache } from '../../batcher/kv/kv-cache.ts';
import { Loop } from '../../batcher/loop.ts';
import type { Dispatch, Standing } from '../../batcher/outbox.ts';
import { BranchMaker } from '../../batcher/prompt-branch.ts';
import { Publisher } from '../../batcher/publisher.ts';
import type { TakenJob } from '../../batcher/queue-worker.ts';
import type { Reasoning } from '../../batcher/reasoning/reasoning-syntax.ts';
import { SamplingScratch } from '../../batcher/sampling/sampling-scratch.ts';
import { Scheduler } from '../../batcher/scheduler/scheduler.ts';
import { schedulerSettings } from '../../batcher/scheduler/scheduler-settings.ts';
import { Speculation } from '../../batcher/speculation.ts';
import { StepRates } from '../../batcher/step-rates.ts';
import { GrammarCache } from '../../batcher/structured/grammar-cache.ts';
import { compileStructure } from '../../batcher/structured/grammar-compilation.ts';
import { SpelledVocabulary } from '../../batcher/structured/spelled-vocabulary.ts';
import type { ToolSyntax } from '../../batcher/tools/tool-format.ts';
import type { Job, Prompt } from '../../shared/job.ts';
import type { TokenEvent } from '../../shared/token-event.ts';
import { FakeEngine, type FakeEngineOptions } from './fake-engine.ts';

export const END_TOKEN = 0;

export interface RigOptions extends FakeEngineOptions {
  budgetBlocks?: number;
  maxRunning?: number;
  /** Bound of the text blocks that it says it holds. */
  prefixEntries?: number;
  /** Default true. */
  speculation?: boolean;
  toolSyntax?: ToolSyntax;
  /** Of every answer; absent for a model that has none. */
  reasoning?: Reasoning | undefined;
  /** What spells the mark that ends it. */
  closerTokenIds?: readonly number[] | undefined;
  /** What tokens from 1 on spell; letters by default. */
  words?: readonly string[];
  /** Tokens behind the words, without text unless they are to be spelled. */
  controls?: readonly string[];
  onEnded?(generation: Generation): void;
}

/** The batcher without Redis: every event of a job, in order, in `events`. */
export class Rig {
  readonly engine: FakeEngine;
  readonly scheduler: Scheduler;
  readonly loop: Loop;
  readonly generations: Generations;
  readonly publisher: Publisher;
  readonly held: HeldPrefixes;
  readonly events = new Map<string, TokenEvent[]>();
  /** The same of all jobs, as they were recorded. */
  readonly told: TokenEvent[] = [];
  /** What Redis would say of a job. */
  readonly standings = new Map<string, Standing>();
  readonly completed: string[] = [];
  readonly givenBack: string[] = [];
  readonly errors: Error[] = [];
  /** The next so many sends fail. */
  failingSends = 0;
  /** The next so many claims of a record fail. */
  failingClaims = 0;
  /** Draft tokens verified so far. */
  draftCount = 0;
  readonly #running: Promise<void>;

  constructor(options: RigOptions = {}) {
    const maxRunning = options.maxRunning ?? 8;
    const { words, controls = [] } = options;
    const spelled = words && [...words, ...controls].map(word => new TextEncoder().encode(word));
    const spell = (id: number, controlTokens: 'hidden' | 'spelled' = 'hidden'): Uint8Array => {
      if (spelled === undefined) return letterOf(id);
      return (id > words!.length && controlTokens === 'hidden' ? undefined : spelled[id - 1]) ?? new Uint8Array();
    };
    const shape = { rowCount: maxRunning, contextTokens: 256, ...(spelled && { vocabSize: spelled.length + 1 }), ...options.shape };
    this.engine = new FakeEngine({ ...options, shape });
    const { blockTokens, rowCount, contextTokens, vocabSize } = this.engine.shape;
    const budgetBlocks = options.budgetBlocks ?? 256;
    this.held = new HeldPrefixes({
      blockTokens,
      maxEntries: options.prefixEntries ?? 1_000,
      maxClosed: 16,
      tokenBytes: spell,
      pathTokenIds: blockId => kv.pathTokenIds(blockId),
      onChanged: () => undefined,
    });
    const kv: KvCache = new KvCache({ blockTokens, budgetBlocks, storeBlocks: budgetBlocks, rowCount }, this.held);
    this.scheduler = new Scheduler({
      settings: schedulerSettings({ maxRunning: rowCount }),
      kv,
      contextTokens,
      clock: () => Date.now(),
    });
    const outbox = {
      send: (dispatches: readonly Dispatch[]) => this.#send(dispatches),
      claim: (of: { jobId: string }) => this.#claim(of.jobId),
    };
    this.publisher = new Publisher({
      outbox,
      onStanding: (generation, standing) => this.generations.stands(generation, standing),
      onRecorded: (generation, events) => this.generations.recorded(generation, events),
      onSettled: generation => this.generations.settled(generation),
      onError: error => this.errors.push(error),
    });
    const toolSyntax: ToolSyntax = options.toolSyntax ?? { format: 'hermes' };
    const vocabulary = new SpelledVocabulary({ vocabSize, endTokenIds: [END_TOKEN], tokenBytes: spell });
    const grammars = new GrammarCache({
      vocabulary,
      compile: async structure => compileStructure(structure, vocabulary),
      maxCount: 16,
      maxBytes: 2 ** 24,
    });
    this.generations = new Generations({
      scheduler: this.scheduler,
      outbox,
      publisher: this.publisher,
      encodePrompt: prompt =>
        prompt.kind === 'tokens' ? prompt.tokenIds : Array.from(promptText(prompt), byte => 1 + (byte % (vocabSize - 1))),
      branchMaker: new BranchMaker(
        { endTokenIds: [END_TOKEN], tokenBytes: spell },
        {
          scratch: new SamplingScratch(vocabSize),
          toolSyntax,
          closerTokenIds: options.closerTokenIds ?? [],
        },
      ),
      grammarOf: form => grammars.grammarOf(form),
      toolSyntax,
      reasoningOf: () => options.reasoning,
      prefixes: this.held,
      contextTokens,
      maxAttempts: 3,
      reproducible: true,
      ttftSloMs: undefined,
      clock: () => Date.now(),
      wake: () => this.loop.wake(),
      onSequenceLeft: sequenceId => speculation?.ended(sequenceId),
      onEnded: generation => options.onEnded?.(generation),
      onError: error => this.errors.push(error),
    });
    // Takes every chance to draft, whatever it costs here and now, so that verification is tried hard.
    const speculation = options.speculation === false ? undefined : new Speculation({ maxRows: 4, maxDrafts: 4, minGain: 0 });
    this.loop = new Loop({
      engine: this.engine,
      scheduler: this.scheduler,
      publisher: this.publisher,
      rates: new StepRates(),
      speculation,
      onVerified: draftTokens => {
        this.draftCount += draftTokens;
      },
      find: sequenceId => this.generations.find(sequenceId),
      runFailed: (sequenceIds, error) => this.generations.runFailed(sequenceIds, error),
      reproducibleRows: 2,
      itlSloMs: 150,
      onStep: () => {
        this.scheduler.check();
        this.held.check();
      },
    });
    this.#running = this.loop.run();
  }

  /** `id` is what the queue calls it. */
  async submit(job: Job, attempt = 1, id = job.id): Promise<void> {
    const taken: TakenJob = {
      id,
      data: job,
      attempt,
      deathCount: attempt - 1,
      complete: async () => void this.completed.push(id),
      giveBack: async () => void this.givenBack.push(id),
    };
    await this.generations.submit(taken);
  }

  /** Resolves when the batcher holds no job and has told everything. */
  async settled(): Promise<void> {
    while (this.generations.count > 0) await new Promise(resolve => setTimeout(resolve, 1));
    await this.publisher.idle();
  }

  eventsOf(jobId: string): TokenEvent[] {
    return this.events.get(jobId) ?? [];
  }

  textOf(jobId: string, choice = 0): string {
    return this.eventsOf(jobId).reduce((text, event) => (event.type === 'delta' && event.choice === choice ? text + event.text : text), '');
  }

  async close(): Promise<void> {
    this.loop.stop();
    await this.#running;
    this.engine.close();
  }

  async #send(dispatches: readonly Dispatch[]): Promise<Standing[]> {
    await new Promise(resolve => setImmediate(resolve));
    if (this.failingSends > 0) {
      this.failingSends -= 1;
      throw new Error('the connection is gone');
    }
    return dispatches.map(({ recipient, events }) => {
      const standing = this.standings.get(recipient.jobId) ?? 'ok';
      if (standing === 'fenced') return standing;
      this.told.push(...events);
      this.events.set(recipient.jobId, [...this.eventsOf(recipient.jobId), ...structuredClone(events)]);
      return standing;
    });
  }

  async #claim(jobId: string): Promise<{ standing: Standing; events: TokenEvent[] }> {
    if (this.failingClaims > 0) {
      this.failingClaims -= 1;
      throw new Error('the connection is gone');
    }
    return { standing: this.standings.get(jobId) ?? 'ok', events: this.eventsOf(jobId) };
  }
}

/** Of a prompt that is no tokens, one token each. */
export function promptText(prompt: Prompt): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(prompt));
}

/** Token 1 is 'a', 2 is 'b', and so on round the alphabet. */
function letterOf(tokenId: number): Uint8Array {
  return tokenId === END_TOKEN ? new Uint8Array() : Uint8Array.of(97 + ((tokenId - 1) % 26));
}

let jobCount = 0;

export function makeJob(parts: Partial<Job> = {}): Job {
  return {
    version: 1,
    id: `job-${++jobCount}`,
    model: 'fake',
    tenant: 'acme',
    shard: '0',
    prompt: { kind: 'tokens', tokenIds: [1, 2, 3, 4, 5] },
    sampling: { temperature: 0 },
    stopping: { maxTokens: 12, ignoreEos: true },
    choiceCount: 1,
    serviceClass: 'default',
    submittedAt: Date.now(),
    ...parts,
  };
}
