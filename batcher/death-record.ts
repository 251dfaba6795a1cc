/**
 * DeathRecord: what is known of the batchers that died over one request, and whether it is what killed them.
 *
 * One over which batchers die again and again without getting further, the last two times apart from others of its kind, is. One that gets further
 * each time had bad luck, within reason: it is given up too when it was there at many deaths.
 */
import { ApiError } from '../shared/errors.ts';
import type { TokenEvent } from '../shared/token-event.ts';

/** Times the attempts that a request has at one place, it may outlive batchers while it gets further. */
const FRUITFUL_DEATHS = 5;
/** Deaths apart from other suspects that convict: a batcher may end for another reason during one. */
const CONVICTING_TRIES = 2;

export class DeathRecord {
  /** This attempt, counted from 1. */
  readonly #attempt: number;
  /** The last attempt that got further; 0 when none did. */
  #lastFruitfulAttempt = 0;
  /** Attempts that ran it apart from other suspects since then. */
  #tryCount = 0;

  constructor(attempt: number) {
    this.#attempt = attempt;
  }

  /** An event that an earlier attempt recorded. */
  follow(event: TokenEvent): void {
    if (event.type === 'tried') this.#tryCount++;
    if (!isFruit(event)) return;
    this.#lastFruitfulAttempt = event.attempt;
    this.#tryCount = 0;
  }

  /** Whether the request is to run apart from others that may be what kills. Throws ApiError `generation_failed` where it is not to be tried again. */
  mustRunApart({ deathCount, maxAttempts }: { deathCount: number; maxAttempts: number }): boolean {
    const deathsHere = Math.min(deathCount, this.#attempt - Math.max(1, this.#lastFruitfulAttempt));
    const isGuilty = deathsHere >= maxAttempts && (this.#tryCount >= CONVICTING_TRIES || maxAttempts === 1);
    if (isGuilty || deathCount >= maxAttempts * FRUITFUL_DEATHS) {
      throw new ApiError(
        'generation_failed',
        `Batchers ended ${deathCount} times while they worked on this request; it is not tried again.`,
      );
    }
    return deathsHere > 0 && deathsHere >= maxAttempts - 1;
  }
}

/** It tells of a token or a vector: the request got further. */
export function isFruit(event: TokenEvent): boolean {
  return (event.type === 'delta' && event.tokenIds.length > 0) || (event.type === 'embeddings' && event.vectors.length > 0);
}
