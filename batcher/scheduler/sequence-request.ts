/**
 * SequenceRequest: what the scheduler is asked to generate, and the refusal of what it never could.
 * Guarantee: a request that validateRequest let through can run to an end when it is alone.
 */
import type { ServiceClass } from '../../shared/job.ts';

export interface SequenceRequest {
  /** Of the whole request; cancel takes it. */
  id: string;
  tenant: string;
  /** The tenant's share against others; 1 when absent. The latest request's counts. */
  weight?: number;
  serviceClass: ServiceClass;
  promptTokenIds: readonly number[];
  /** At least 1; what the context cannot hold is cut off. */
  maxNewTokens: number;
  /** By the scheduler's clock. */
  arrivedAt: number;
  /** When the first token is wanted, by the scheduler's clock. */
  ttftDeadlineAt?: number | undefined;
  /** The same bits whatever runs beside it; costs some speed. */
  reproducible: boolean;
  /** Drafts are verified for a reproducible request too. */
  speculation?: boolean | undefined;
  /** The logits of every prompt position are wanted, so that all of it is computed here: in smaller chunks, and nothing comes from the prefix store. */
  scoresPrompt?: boolean | undefined;
  /** One id for each choice: that many sequences share one prefill. Unique among all that live. */
  choiceIds: readonly string[];
  /** Tokens that another batcher generated before it failed, for a request of one choice. They are recomputed, not sampled. */
  resume?: { generatedTokenIds: readonly number[] } | undefined;
  /** The same for several choices: one list for each of choiceIds. */
  resumeChoices?: readonly (readonly number[])[] | undefined;
}

/** What each choice generated before, or undefined when none did. */
export function resumedTokens(request: SequenceRequest): readonly (readonly number[])[] | undefined {
  const lists = request.resumeChoices ?? (request.resume === undefined ? [] : [request.resume.generatedTokenIds]);
  return lists.some(tokenIds => tokenIds.length > 0) ? lists : undefined;
}

export type RefusalReason =
  | 'empty_prompt'
  | 'invalid_request'
  | 'duplicate_id'
  | 'context_exceeded'
  | 'kv_budget_exceeded'
  | 'nothing_to_generate'
  | 'waiting_full';

export class RequestRefused extends Error {
  readonly reason: RefusalReason;

  constructor(reason: RefusalReason, message: string) {
    super(message);
    this.name = 'RequestRefused';
    this.reason = reason;
  }
}

/** Throws RequestRefused when the request could not run even alone. */
export function validateRequest(request: SequenceRequest, room: { contextTokens: number; budgetTokens: number }): void {
  const promptCount = request.promptTokenIds.length;
  const resumed = resumedTokens(request);
  if (promptCount === 0) throw new RequestRefused('empty_prompt', 'The prompt has no token.');
  if (request.choiceIds.length === 0) throw new RequestRefused('invalid_request', 'A request has at least one choice.');
  if (new Set(request.choiceIds).size !== request.choiceIds.length)
    throw new RequestRefused('duplicate_id', `Request ${request.id} names a choice twice.`);
  if (resumed !== undefined && resumed.length !== request.choiceIds.length)
    throw new RequestRefused(
      'invalid_request',
      `${request.choiceIds.length} choices cannot be resumed with ${resumed.length} lists of tokens.`,
    );
  if (request.weight !== undefined && !(request.weight > 0 && Number.isFinite(request.weight)))
    throw new RequestRefused('invalid_request', `A tenant's weight must be a positive number, not ${request.weight}.`);
  if (!Number.isInteger(request.maxNewTokens) || request.maxNewTokens < 1)
    throw new RequestRefused('invalid_request', `maxNewTokens must be a whole number of at least 1, not ${request.maxNewTokens}.`);
  if (promptCount + 1 > room.contextTokens)
    throw new RequestRefused(
      'context_exceeded',
      `The prompt has ${promptCount} tokens; with one generated token it passes the context of ${room.contextTokens} tokens.`,
    );
  if (promptCount + 1 > room.budgetTokens)
    throw new RequestRefused(
      'kv_budget_exceeded',
      `The prompt has ${promptCount} tokens; with one generated token it passes the KV budget of ${room.budgetTokens} tokens.`,
    );
  const most = Math.min(request.maxNewTokens, room.contextTokens - promptCount);
  for (const { length } of resumed ?? []) {
    if (length >= most) throw new RequestRefused('nothing_to_generate', `Request ${request.id} has ${length} tokens and may have ${most}.`);
  }
}
