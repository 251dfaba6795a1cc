/**
 * Sequence: one line of tokens, of which some are known and the first so many are computed; there are no phases.
 * Guarantee: computed tokens never exceed known ones, and a sequence with a row never has fewer than one token left to compute.
 *
 *     0 ........ promptCount ........ knownCount
 *     |--- computed ---|--- to do ----|            the last known token's step gives the next token
 *
 * What is to do below `prefillTarget` is fed in chunks of several tokens, what is above by decode steps of one.
 */
import { type BlockOrigin, MIXED, type OriginDemand } from '../kv/block-origin.ts';
import type { PrefixSpace } from '../kv/kv-cache.ts';
import type { SequenceRequest } from './sequence-request.ts';

export type SequenceState = 'waiting' | 'running' | 'ended';

export class Sequence {
  readonly request: SequenceRequest;
  readonly promptCount: number;
  /** Most tokens it may know: prompt and what it may generate, within the context. */
  readonly knownLimit: number;
  /** The choices it stands for; more than one until the shared prefill ends. */
  choiceIds: string[];
  state: SequenceState = 'waiting';
  row: number | undefined;
  computedCount = 0;
  prefillTarget = 0;
  /** Tokens at the front whose keys and values in the row came from prefill alone. */
  prefilledCount = 0;
  /** Prompt tokens that its tenant has paid for, or got from the store when it was first admitted: computing them again is free. */
  chargedCount: number | undefined;
  /** Of the first admission; the order in which victims are not chosen. */
  admissionOrder: number | undefined;
  space: PrefixSpace | undefined;
  /** A chunk was computed that the store has not been offered yet. */
  hasUnsavedPrefill = false;
  drafts: readonly number[] = [];
  /** In the plan being made: the position after its chunk; undefined without one. */
  chunkEnd: number | undefined;
  /** Set when its row went to a fork. */
  heir: Sequence | undefined;
  /** Everything above the prompt was computed by decode steps. */
  #isReplayable = true;
  #tokenIds: readonly number[];
  #ownTokenIds: number[] | undefined;

  constructor(request: SequenceRequest, from: { choiceIds: string[]; contextTokens: number; generatedTokenIds?: readonly number[] }) {
    this.request = request;
    this.choiceIds = from.choiceIds;
    this.promptCount = request.promptTokenIds.length;
    this.knownLimit = this.promptCount + Math.min(request.maxNewTokens, from.contextTokens - this.promptCount);
    this.#tokenIds = request.promptTokenIds;
    if (from.generatedTokenIds !== undefined) this.append(from.generatedTokenIds);
  }

  get id(): string {
    return this.choiceIds[0]!;
  }

  /** Prompt and generated. The prompt is shared with the request until a token is appended. */
  get tokenIds(): readonly number[] {
    return this.#tokenIds;
  }

  get knownCount(): number {
    return this.#tokenIds.length;
  }

  get generatedCount(): number {
    return this.knownCount - this.promptCount;
  }

  get uncomputedCount(): number {
    return this.knownCount - this.computedCount;
  }

  /** Its next tokens go in a chunk, not in the decode batch. */
  get isPrefilling(): boolean {
    return this.computedCount < this.prefillTarget;
  }

  /** All that it still has to prefill is wanted with its logits. What was sampled came after the whole prompt had been scored. */
  get isScoring(): boolean {
    return this.request.scoresPrompt === true && this.generatedCount === 0;
  }

  get mayTakeDrafts(): boolean {
    return !this.request.reproducible || this.request.speculation === true;
  }

  /** Which stored blocks it may use. */
  get demand(): OriginDemand {
    return this.request.reproducible ? { promptTokens: this.promptCount } : 'any';
  }

  /** The origin of blocks past prefilledCount in its row. */
  get tailOrigin(): BlockOrigin {
    const replayable = this.request.reproducible && this.#isReplayable && this.prefilledCount === this.promptCount;
    return replayable ? this.promptCount : MIXED;
  }

  append(tokenIds: readonly number[]): void {
    if (tokenIds.length === 0) return;
    this.#ownTokenIds ??= this.#tokenIds.slice();
    for (const tokenId of tokenIds) this.#ownTokenIds.push(tokenId);
    this.#tokenIds = this.#ownTokenIds;
  }

  /**
   * Starts with `cachedCount` tokens found in the store, of which `prefilledCount` at the front are from prefill.
   *
   * A chunk of one token would go through another kernel than prefill does, so at least two tokens of the prompt are always computed,
   * the last cached one again if need be: the same bits come out. Only a prompt of one token has no choice. A reproducible sequence
   * that generated before gets those tokens back by decode steps, as they were computed the first time; any other by prefill.
   */
  start(cachedCount: number, prefilledCount: number): void {
    const { knownCount, promptCount } = this;
    if (this.generatedCount === 0) {
      this.prefillTarget = knownCount;
      this.computedCount = Math.max(0, Math.min(cachedCount, knownCount - 2));
    } else if (!this.request.reproducible) {
      this.computedCount = Math.min(cachedCount, knownCount - 1);
      this.prefillTarget = this.uncomputedCount === 1 ? this.computedCount : knownCount;
    } else if (cachedCount >= promptCount) {
      this.computedCount = Math.min(cachedCount, knownCount - 1);
      this.prefillTarget = promptCount;
    } else {
      this.prefillTarget = promptCount;
      this.computedCount = Math.max(0, Math.min(cachedCount, promptCount - 2));
    }
    // What a reproducible sequence may use of the prompt is prefilled, also where a block reaches past the prompt.
    this.prefilledCount = this.request.reproducible
      ? Math.min(this.computedCount, promptCount)
      : Math.min(prefilledCount, this.computedCount);
    this.#isReplayable = true;
  }

  /** A chunk from computedCount to `end` was run. */
  completeChunk(end: number): void {
    const isPure = this.prefilledCount === this.computedCount && end - this.computedCount > 1;
    if (isPure) this.prefilledCount = end;
    this.computedCount = end;
    this.hasUnsavedPrefill = true;
  }

  /** A verification was run: whatever it computed came neither from prefill nor from decode alone. */
  completeVerification(computedCount: number): void {
    this.computedCount = computedCount;
    this.#isReplayable = false;
  }

  /** One token was run in the decode batch, by each of so many steps. */
  completeDecode(steps = 1): void {
    this.computedCount += steps;
  }

  /** The row is lost: everything is to be computed again, or found in the store. */
  restart(): void {
    this.row = undefined;
    this.computedCount = 0;
    this.prefillTarget = 0;
    this.prefilledCount = 0;
    this.hasUnsavedPrefill = false;
    this.drafts = [];
  }

  /** A sequence for other choices with the same first computed tokens and the same payments. */
  fork(choiceId: string, contextTokens: number): Sequence {
    const twin = new Sequence(this.request, { choiceIds: [choiceId], contextTokens });
    twin.computedCount = this.computedCount;
    twin.prefillTarget = this.prefillTarget;
    twin.prefilledCount = this.prefilledCount;
    twin.chargedCount = this.promptCount;
    twin.admissionOrder = this.admissionOrder;
    twin.space = this.space;
    return twin;
  }
}
