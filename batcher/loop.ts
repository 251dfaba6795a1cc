/**
 * Loop: plan, run, commit, for ever. The one place where scheduler, engine and generations meet. While the engine computes step N, the
 * text and the events of step N-1 are made and sent. Every job that was submitted and is not lost ends in exactly one terminal event.
 */
import type { Choice } from './choice.ts';
import { sizeChunks } from './chunk-policy.ts';
import type { BlockCopy, Engine } from './engine/engine.ts';
import type { Generation } from './generation.ts';
import type { Found } from './generations.ts';
import type { Publisher } from './publisher.ts';
import type { SampledToken } from './sampling/sampler.ts';
import type { Scheduler } from './scheduler/scheduler.ts';
import type { ChunkEntry, DecodeEntry, StepOutcome, StepPlan } from './scheduler/step-plan.ts';
import type { Speculation } from './speculation.ts';
import { prepareMemory } from './step-memory.ts';
import type { StepRates } from './step-rates.ts';
import { WakeUp } from './wake-up.ts';

export interface LoopParts {
  engine: Engine;
  scheduler: Scheduler;
  publisher: Publisher;
  rates: StepRates;
  /** Absent: no drafts are offered. */
  speculation?: Speculation | undefined;
  /** The choice of a sequence, and the prompt and generation that it belongs to. */
  find(sequenceId: string): Found | undefined;
  /** The engine or the sampler failed for these sequences; they are to be ended. */
  runFailed(sequenceIds: readonly string[], error: Error): void;
  /** Rows that a decode batch with a reproducible sequence has at the least. */
  reproducibleRows: number;
  /** Time between two tokens of a running stream that a prefill beside it is to keep to, in ms. */
  itlSloMs: number;
  onStep?(plan: StepPlan, times: StepTimes): void;
  /** Time since the sequence's last token; undefined for its first. */
  onToken?(sinceLastMs: number | undefined): void;
  onVerified?(draftTokens: number, acceptedTokens: number): void;
}

/** Of one step, in ms. */
export interface StepTimes {
  /** From its plan to its commit. */
  stepMs: number;
  /** Of that, in the engine's runs. */
  engineMs: number;
  /** Of that, in each chunk of the plan, in its order; 0 for one that failed. */
  chunkMs: readonly number[];
}

/** Tokens that were sampled for a choice and of which nothing was told yet. */
interface Untold {
  generation: Generation;
  choice: Choice;
  tokens: readonly SampledToken[];
}

export class Loop {
  readonly #parts: LoopParts;
  #untold: Untold[] = [];
  /** Blocks that the step under way is still to copy into the store. */
  #unsaved: readonly BlockCopy[] = [];
  /** Of the tokens that were sampled since: ms since the one before; undefined for a choice's first. */
  #waits: (number | undefined)[] = [];
  readonly #wakeUp = new WakeUp();
  #isStopped = false;
  /** Spent in the engine during the step under way. */
  #engineMs = 0;
  #chunkMs: number[] = [];
  /** Of that, on streams that run: their decode and what verified their drafts. */
  #streamsMs = 0;

  constructor(parts: LoopParts) {
    this.#parts = parts;
  }

  /** There may be something to do. */
  wake(): void {
    this.#wakeUp.call();
  }

  /** The step under way is the last. */
  stop(): void {
    this.#isStopped = true;
    this.wake();
  }

  /** Runs until stop. */
  async run(): Promise<void> {
    const { scheduler } = this.#parts;
    while (!this.#isStopped) {
      const startedAt = performance.now();
      sizeChunks(this.#parts);
      const plan = scheduler.plan();
      if (plan === undefined) {
        this.#tell();
        // What was just told may have freed room for a sequence that waits.
        await this.#wakeUp.sleep();
        continue;
      }
      this.#engineMs = 0;
      this.#chunkMs = [];
      this.#streamsMs = 0;
      for (const { sequenceId, cachedTokens } of plan.admitted) {
        const found = this.#parts.find(sequenceId);
        found?.generation.prefillStarts(found.branch, cachedTokens);
      }
      this.#endForRoom(plan.exhausted);
      const outcomes = await this.#runPlan(plan);
      this.#endForRoom(scheduler.commit(plan, outcomes));
      this.#parts.rates.stepped(this.#streamsMs);
      this.#offerDrafts(outcomes);
      this.#parts.onStep?.(plan, { stepMs: performance.now() - startedAt, engineMs: this.#engineMs, chunkMs: this.#chunkMs });
    }
    this.#tell();
  }

  async #runPlan(plan: StepPlan): Promise<StepOutcome[]> {
    const { engine } = this.#parts;
    this.#unsaved = prepareMemory(engine, plan);
    const outcomes: StepOutcome[] = [];
    for (const chunk of plan.chunks) {
      const before = this.#engineMs;
      await this.#runChunk(chunk, outcomes);
      this.#chunkMs.push(this.#engineMs - before);
    }
    if (plan.decode.length > 0) await this.#runDecode(plan.decode, outcomes);
    // The first token of a prompt does not wait for the next step to begin.
    else this.#tell();
    this.#save();
    return outcomes;
  }

  async #runChunk(chunk: ChunkEntry, outcomes: StepOutcome[]): Promise<void> {
    const startedAt = performance.now();
    try {
      const running = this.#parts.engine.prefill(chunk);
      this.#save();
      this.#tell();
      if (chunk.sample)
        for (const sequenceId of chunk.choiceIds) this.#prepare(sequenceId, chunk.purpose === 'verify' ? chunk.tokenIds.slice(1) : []);
      const logits = await running;
      const ms = this.#engineTime(startedAt);
      if (chunk.purpose === 'verify') {
        this.#streamsMs += ms;
        this.#verify(chunk, logits, { ms, outcomes });
        return;
      }
      this.#parts.rates.prefilled({ start: chunk.start, tokens: chunk.tokenIds.length }, ms);
      this.#scorePrompt(chunk, logits);
      if (!chunk.sample) return;
      const position = chunk.start + chunk.tokenIds.length;
      const last = this.#row(logits, chunk.logitCount - 1);
      for (const sequenceId of chunk.choiceIds) this.#sample(sequenceId, { logits: last, positions: [position], drafts: [] }, outcomes);
    } catch (error) {
      this.#parts.runFailed(chunk.choiceIds, error as Error);
    }
  }

  /** At once, since the logits are good until the next chunk. */
  #scorePrompt(chunk: ChunkEntry, logits: Float32Array): void {
    if (chunk.logitCount < chunk.tokenIds.length) return;
    const found = this.#parts.find(chunk.sequenceId);
    if (found === undefined || found.generation.isOver) return;
    const piece = found.branch.echo?.score(chunk.start, logits);
    if (piece !== undefined) found.generation.echo(found.branch, piece);
  }

  /** Drafts hold as long as each is the token that is sampled at its position; the first that is not is replaced, and the rest dropped. */
  #verify(chunk: ChunkEntry, logits: Float32Array, run: { ms: number; outcomes: StepOutcome[] }): void {
    const drafts = chunk.tokenIds.slice(1);
    const positions = Array.from({ length: chunk.logitCount }, (_, index) => chunk.start + 1 + index);
    const tokenIds = this.#sample(chunk.sequenceId, { logits, positions, drafts }, run.outcomes);
    this.#parts.speculation?.verified(chunk.sequenceId, { draftCount: drafts.length, tokenIds, ms: run.ms });
    this.#parts.onVerified?.(drafts.length, Math.max(0, tokenIds.length - 1));
  }

  async #runDecode(entries: readonly DecodeEntry[], outcomes: StepOutcome[]): Promise<void> {
    const startedAt = performance.now();
    const isReproducible = entries.some(entry => entry.reproducible);
    try {
      const running = this.#parts.engine.decode({
        tokenIds: entries.map(entry => entry.tokenId),
        positions: entries.map(entry => entry.position),
        minRows: isReproducible ? this.#parts.reproducibleRows : 1,
      });
      this.#save();
      this.#tell();
      for (const { sequenceId, sample } of entries) if (sample) this.#prepare(sequenceId, []);
      const logits = await running;
      const ms = this.#engineTime(startedAt);
      this.#streamsMs += ms;
      this.#parts.rates.decoded(entries.length, ms);
      this.#parts.speculation?.decoded(entries.length, ms);
      entries.forEach((entry, index) => {
        if (!entry.sample) return;
        const row = this.#row(logits, index);
        const [tokenId] = this.#sample(entry.sequenceId, { logits: row, positions: [entry.position + 1], drafts: [] }, outcomes);
        if (tokenId !== undefined) this.#parts.speculation?.sampled(entry.sequenceId, tokenId);
      });
    } catch (error) {
      this.#parts.runFailed(
        entries.map(entry => entry.sequenceId),
        error as Error,
      );
    }
  }

  /** Masks of structured answers are made while the engine runs, before its logits are there. */
  #prepare(sequenceId: string, drafts: readonly number[]): void {
    const found = this.#parts.find(sequenceId);
    if (found !== undefined && !found.generation.isOver) found.choice.prepare(drafts);
  }

  #engineTime(startedAt: number): number {
    const ms = performance.now() - startedAt;
    this.#engineMs += ms;
    return ms;
  }

  #row(logits: Float32Array, index: number): Float32Array {
    const { vocabSize } = this.#parts.engine.shape;
    return logits.subarray(index * vocabSize, (index + 1) * vocabSize);
  }

  /**
   * Samples a token for each position in turn, from its row of the logits, until one is not the draft that was fed for it. Returns them.
   * A sequence whose sampling fails ends alone; one that is to have no token ends at once.
   */
  #sample(
    sequenceId: string,
    run: { logits: Float32Array; positions: readonly number[]; drafts: readonly number[] },
    outcomes: StepOutcome[],
  ): readonly number[] {
    const found = this.#parts.find(sequenceId);
    if (found === undefined || found.generation.isOver || found.choice.isEnded) return [];
    const { generation, choice } = found;
    if (choice.isEmpty) {
      generation.prefillEnded();
      choice.endByLength();
      outcomes.push({ sequenceId, tokenIds: [], finished: true });
      this.#untold.push({ generation, choice, tokens: [] });
      return [];
    }
    const tokens: SampledToken[] = [];
    try {
      for (const [index, position] of run.positions.entries()) {
        const token = choice.sample(this.#row(run.logits, index), position);
        tokens.push(token);
        generation.tokenSampled();
        this.#waits.push(choice.sinceLastTokenMs());
        if (choice.isEnded || token.tokenId !== run.drafts[index]) break;
      }
    } catch (error) {
      this.#parts.runFailed([sequenceId], error as Error);
      return [];
    }
    const tokenIds = tokens.map(token => token.tokenId);
    outcomes.push({ sequenceId, tokenIds, finished: choice.isEnded });
    this.#untold.push({ generation, choice, tokens });
    return tokenIds;
  }

  /** Drafts for the sequences that were sampled in this step and go on. */
  #offerDrafts(outcomes: readonly StepOutcome[]): void {
    const { speculation, scheduler } = this.#parts;
    if (speculation === undefined) return;
    const open = outcomes.filter(outcome => !outcome.finished);
    for (const { sequenceId } of open) {
      const found = this.#parts.find(sequenceId);
      if (found === undefined || !scheduler.mayTakeDrafts(sequenceId)) continue;
      const tokenIds = () => [...found.branch.promptTokenIds, ...found.choice.generatedTokenIds];
      const drafts = speculation.draftsFor({ id: sequenceId, tokenIds }, open.length);
      const fitting = found.choice.fittingDrafts(drafts);
      if (fitting.length > 0) scheduler.proposeDrafts(sequenceId, fitting);
    }
  }

  /** Choices that ended because context or memory has no room for another token. */
  #endForRoom(sequenceIds: readonly string[]): void {
    for (const sequenceId of sequenceIds) {
      const found = this.#parts.find(sequenceId);
      if (found === undefined || found.generation.isOver) continue;
      found.choice.endByLength();
      // Nothing was sampled for it in this step, so there is nothing else that would tell of its end.
      if (!this.#untold.some(({ choice }) => choice === found.choice)) this.#untold.push({ ...found, tokens: [] });
    }
  }

  #save(): void {
    for (const copy of this.#unsaved) this.#parts.engine.saveBlocks(copy);
    this.#unsaved = [];
  }

  /** Makes text and events of what was sampled in the last step, and sends them. */
  #tell(): void {
    const untold = this.#untold;
    this.#untold = [];
    for (const wait of this.#waits) this.#parts.onToken?.(wait);
    this.#waits = [];
    for (const { generation, choice, tokens } of untold) {
      if (generation.isOver || choice.finishReason !== undefined) continue;
      const delta = choice.tell(tokens);
      if (delta.finishReason === 'stop') this.#parts.scheduler.finish(choice.sequenceId);
      generation.tell(choice, delta);
    }
    this.#parts.publisher.publish();
  }
}
