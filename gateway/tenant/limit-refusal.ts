/** LimitRefusal: a limit that is in the way, in words: which it is, whose, what it has left, and when a try will succeed. */
import { ApiError } from '../../shared/errors.ts';
import type { Refused } from './account.ts';

export function limitRefusal({ whose, shortage }: Refused, now: number): ApiError {
  const { unit, limit, usedCount, wantedCount, retryAt } = shortage;
  if (retryAt === undefined) {
    return new ApiError(
      'request_exceeds_limit',
      `This request needs up to ${wantedCount} tokens, prompt and answer together, and the limit of this ${whose} is ${limit} ${unit}: it can never be let in. Ask for fewer tokens (max_tokens) or shorten the prompt.`,
      { param: 'max_tokens' },
    );
  }
  const retryAfterSeconds = Math.max(1, Math.ceil((retryAt - now) / 1000));
  return new ApiError(
    'rate_limit_exceeded',
    `Rate limit reached for this ${whose} on ${unit}: limit ${limit}, used ${usedCount}, requested ${wantedCount}. Please try again in ${retryAfterSeconds}s.`,
    { retryAfterSeconds },
  );
}
