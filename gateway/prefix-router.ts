/**
 * PrefixRouter: whether one batcher in particular should take a job, because it holds the beginning of its prompt: when the prefill that it
 * saves there is worth more than the time that the job would wait there longer than with whoever is free first. Else, when level, or when
 * something is not known: nobody in particular.
 */
import { type BatcherCard, isFresh } from '../shared/batcher-card.ts';
import { type Job, promptsOf } from '../shared/job.ts';
import { loadOf } from '../shared/model-load.ts';
import { PrefixChain, promptBytes } from '../shared/prefix.ts';
import type { PrefixDirectory } from '../shared/prefix-directory.ts';
import type { QueueEstimate } from '../shared/queue-estimate.ts';

export interface Route {
  batcherId: string;
  /** Prompt tokens that the batcher need not compute. */
  savedTokens: number;
}

export interface PrefixRouterOptions {
  directory: Pick<PrefixDirectory, 'match' | 'entryCount'>;
  estimate: Pick<QueueEstimate, 'waitMs'>;
}

/** Less is not worth to be bound to one batcher. */
const MIN_GAIN_MS = 2;
/** A token stands for few bytes, so a longer prompt than this many a token of context will be refused anyway. */
const BYTES_PER_CONTEXT_TOKEN = 8;

export class PrefixRouter {
  readonly #options: PrefixRouterOptions;
  /** Jobs sent to each batcher since it wrote the card that we know. */
  readonly #sent = new Map<string, { writtenAt: number; count: number }>();

  constructor(options: PrefixRouterOptions) {
    this.#options = options;
  }

  /** Undefined: the shared queue. Cards of all models, stale ones too. */
  route(
    job: Pick<Job, 'model' | 'tenant' | 'task' | 'prompt' | 'morePrompts'>,
    cards: readonly BatcherCard[],
    now: number,
  ): Route | undefined {
    const serving = cards.filter(card => card.model === job.model && card.state === 'serving' && isFresh(card, now));
    // With one batcher the shared queue is its own.
    if (serving.length < 2 || job.task !== undefined || promptsOf(job).length > 1 || this.#options.directory.entryCount === 0)
      return undefined;
    const contextTokens = Math.max(...serving.map(card => card.contextTokens));
    const bytes = promptBytes(job.prompt).subarray(0, contextTokens * BYTES_PER_CONTEXT_TOKEN);
    const matches = this.#options.directory.match(new PrefixChain(job.tenant).push(bytes));
    if (matches.length === 0) return undefined;
    const byId = new Map(serving.map(card => [card.batcherId, card]));
    const soonestMs = Math.min(...serving.map(card => this.#waitMs(card, now) ?? 0));
    let best: (Route & { gainMs: number }) | undefined;
    for (const { batcherId, tokens } of matches) {
      const card = byId.get(batcherId);
      if (card === undefined || card.ownQueueCount === undefined || card.prefillTokensPerSecond <= 0) continue;
      const waitMs = this.#waitMs(card, now);
      if (waitMs === undefined) continue;
      const gainMs = (tokens / card.prefillTokensPerSecond) * 1000 - Math.max(0, waitMs - soonestMs);
      if (gainMs > MIN_GAIN_MS && gainMs > (best?.gainMs ?? 0)) best = { batcherId, savedTokens: tokens, gainMs };
    }
    return best && { batcherId: best.batcherId, savedTokens: best.savedTokens };
  }

  /** The job is in that batcher's queue. */
  sent({ batcherId }: Route, cards: readonly BatcherCard[]): void {
    const writtenAt = cards.find(card => card.batcherId === batcherId)?.writtenAt;
    if (writtenAt === undefined) return;
    const known = this.#sent.get(batcherId);
    this.#sent.set(batcherId, { writtenAt, count: known?.writtenAt === writtenAt ? known.count + 1 : 1 });
    for (const id of this.#sent.keys()) if (!cards.some(card => card.batcherId === id)) this.#sent.delete(id);
  }

  /** How long a job that comes now would wait there to be begun; undefined while that cannot be told. */
  #waitMs(card: BatcherCard, now: number): number | undefined {
    const sent = this.#sent.get(card.batcherId);
    const sentCount = sent?.writtenAt === card.writtenAt ? sent.count : 0;
    // Known without any measurement: it has nothing to do before.
    if (sentCount + (card.ownQueueCount ?? 0) + card.waitingCount === 0 && card.runningCount < card.maxRunningCount) return 0;
    return this.#options.estimate.waitMs(
      { model: card.model, position: sentCount + 1, promptTokensBound: 0 },
      loadOf([card], card.model, now),
    );
  }
}
