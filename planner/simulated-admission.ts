/**
 * SimulatedAdmission: which requests a gateway lets into its queue, in simulated time: the product's own rule, with what it has learnt from the requests
 * that came before, as Dispatcher and Broker tell it.
 */
import { Admission, type AdmissionSettings } from '../shared/admission.ts';
import { PlacedJobs } from '../shared/placed-jobs.ts';
import { QueueEstimate } from '../shared/queue-estimate.ts';
import type { SimulatedRequest } from './simulated-batcher.ts';
import type { SimulatedBoard } from './simulated-cards.ts';

/** All batchers serve the same. */
const MODEL = 'simulated';

export class SimulatedAdmission {
  readonly #board: SimulatedBoard;
  readonly #estimate = new QueueEstimate();
  readonly #placed = new PlacedJobs();
  readonly #admission: Admission;

  constructor(settings: AdmissionSettings, board: SimulatedBoard) {
    this.#board = board;
    this.#admission = new Admission({ estimate: this.#estimate, settings });
  }

  /** Whether it may join a queue in which so many stand before it; it then counts as open until `ended` or `failed`. */
  letIn(request: SimulatedRequest, aheadCount: number, now: number): boolean {
    const { id, promptTokenIds, completionTokens, estimatedPromptTokens: promptTokens = promptTokenIds.length } = request;
    const job = {
      ...{ model: MODEL, stopping: { maxTokens: completionTokens }, choiceCount: 1 },
      prompt: { kind: 'tokens' as const, tokenIds: promptTokenIds as number[] },
    };
    const tokens = this.#admission.expectedTokens(job, promptTokens);
    const applicant = { model: MODEL, tokens, maxWaitMs: undefined, queued: this.#placed.mean(MODEL) };
    if (aheadCount > this.#admission.maxAheadCount(applicant, this.#board.load(now))) return false;
    this.#placed.add(MODEL, id, { tokens, promptTokens });
    return true;
  }

  /** A batcher has taken it and counted its prompt. */
  accepted({ promptTokenIds, estimatedPromptTokens }: SimulatedRequest): void {
    this.#estimate.accepted(MODEL, promptTokenIds.length, estimatedPromptTokens ?? promptTokenIds.length);
  }

  ended({ id, promptTokenIds, completionTokens }: SimulatedRequest): void {
    this.#placed.remove(MODEL, id);
    this.#estimate.finished(MODEL, { promptTokens: promptTokenIds.length, completionTokens, cachedTokens: 0 });
  }

  /** A batcher has taken it, and not as a request. */
  failed({ id }: SimulatedRequest): void {
    this.#placed.remove(MODEL, id);
  }
}
