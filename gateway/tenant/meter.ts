/**
 * Meter: what one key, or one tenant with all its keys, has taken of its limits. Whatever it lets in keeps every minute and every day
 * within them; what is given back is as if it had never been taken.
 */
import { CEILING, type Limits } from './limits.ts';
import { SlidingWindow } from './sliding-window.ts';

/** A limit that is in the way. */
export interface Shortage {
  /** As people say it: `tokens per minute`. */
  unit: string;
  limit: number;
  usedCount: number;
  wantedCount: number;
  /** When it will fit; undefined when it never will. */
  retryAt: number | undefined;
  /** Whatever wants more than `room` does not fit before `until`, whatever ends meanwhile; absent where that is not sure. */
  firm?: { room: number; until: number } | undefined;
}

export const DAY_MS = 24 * 60 * 60_000;

export class Meter {
  limits: Limits;
  readonly #requests = new SlidingWindow();
  readonly #tokens = new SlidingWindow();
  #openCount = 0;
  #day = 0;
  #dayTokens = 0;

  constructor(limits: Limits) {
    this.limits = limits;
  }

  /** Everything that keeps a request of so many tokens out now. */
  shortages(tokens: number, context: { now: number; openForMs: number; isBackground: boolean }): Shortage[] {
    const { now, openForMs, isBackground } = context;
    const limits = isBackground ? backgroundLimits(this.limits, tokens) : this.limits;
    const { requestsPerMinute = CEILING, concurrentRequests = CEILING } = limits;
    const found: Shortage[] = [];
    const requestsFitAt = this.#requests.fitsAt(1, requestsPerMinute, now);
    if (requestsFitAt !== now) {
      const usedCount = this.#requests.total(now);
      found.push({ unit: 'requests per minute', limit: requestsPerMinute, usedCount, wantedCount: 1, retryAt: requestsFitAt });
    }
    found.push(...this.tokenShortages(tokens, { now, limits }));
    if (this.#openCount >= concurrentRequests) {
      found.push({
        unit: 'concurrent requests',
        limit: concurrentRequests,
        usedCount: this.#openCount,
        wantedCount: 1,
        // Requests that last so long, evenly spread: one of them ends this soon.
        retryAt: now + Math.ceil(openForMs / Math.max(1, this.#openCount)),
      });
    }
    return found;
  }

  /** What keeps out so many tokens more, of a request that has `reserved` already. */
  tokenShortages(tokens: number, context: { now: number; reserved?: number; limits?: Limits }): Shortage[] {
    const { now, reserved = 0, limits = this.limits } = context;
    const { tokensPerMinute = CEILING, tokensPerDay = Number.POSITIVE_INFINITY } = limits;
    const found: Shortage[] = [];
    const wantedCount = tokens + reserved;
    const fitsAt = this.#tokens.fitsAt(tokens, tokensPerMinute, now);
    if (fitsAt !== now) {
      const retryAt = wantedCount > tokensPerMinute ? undefined : fitsAt;
      const spent = this.#tokens.firm(now);
      const firm = spent && { room: tokensPerMinute - spent.total, until: spent.until };
      found.push({ unit: 'tokens per minute', limit: tokensPerMinute, usedCount: this.#tokens.total(now), wantedCount, retryAt, firm });
    }
    const usedCount = this.dayTokens(now);
    if (usedCount + tokens > tokensPerDay) {
      const retryAt = wantedCount > tokensPerDay ? undefined : (dayOf(now) + 1) * DAY_MS;
      found.push({ unit: 'tokens per day', limit: tokensPerDay, usedCount, wantedCount, retryAt });
    }
    return found;
  }

  /** Lets a request in, with a reservation. */
  take(tokens: number, at: number, now: number): void {
    this.#openCount += 1;
    this.#requests.spend(1, at, now);
    this.extend(tokens, at, now);
  }

  /** Reserves more for a request that was let in at `at`. */
  extend(tokens: number, at: number, now: number): void {
    this.#tokens.hold(tokens, at);
    this.#addToDay(tokens, at, now);
  }

  /** A request has ended: of what was reserved, so many tokens were used; undefined when it was refused after all. */
  end(lease: { reservedTokens: number; admittedAt: number }, usedTokens: number | undefined, now: number): void {
    const { reservedTokens, admittedAt } = lease;
    this.#openCount -= 1;
    this.#tokens.release(reservedTokens, admittedAt);
    this.#addToDay((usedTokens ?? 0) - reservedTokens, admittedAt, now);
    if (usedTokens === undefined) this.#requests.refund(1, admittedAt, now);
    else this.#tokens.spend(usedTokens, admittedAt, now);
  }

  /** What ended requests used, told after a restart. */
  recall(past: { requests: number; tokens: number; at: number }, now: number): void {
    this.#requests.spend(past.requests, past.at, now);
    this.#tokens.spend(past.tokens, past.at, now);
  }

  /** What ended requests of this day used, told after a restart. */
  recallDay(tokens: number, now: number): void {
    this.#addToDay(tokens, now, now);
  }

  /** For the headers: the limit, what is left of it, and when all of it is free again. */
  requests(now: number): { limit: number; remaining: number; resetMs: number } {
    return standingOf(this.#requests, this.limits.requestsPerMinute ?? CEILING, now);
  }

  tokens(now: number): { limit: number; remaining: number; resetMs: number } {
    return standingOf(this.#tokens, this.limits.tokensPerMinute ?? CEILING, now);
  }

  get openCount(): number {
    return this.#openCount;
  }

  dayTokens(now: number): number {
    this.#turnDay(now);
    return this.#dayTokens;
  }

  check(): void {
    this.#requests.check();
    this.#tokens.check();
    if (this.#openCount < 0 || this.#dayTokens < 0) throw new Error('a count below zero');
  }

  /** A request belongs to the day on which it was let in. */
  #addToDay(tokens: number, at: number, now: number): void {
    this.#turnDay(now);
    if (dayOf(at) === this.#day) this.#dayTokens += tokens;
  }

  #turnDay(now: number): void {
    if (dayOf(now) === this.#day) return;
    this.#day = dayOf(now);
    this.#dayTokens = 0;
  }
}

/** Days since 1970 in UTC. */
export function dayOf(at: number): number {
  return Math.floor(at / DAY_MS);
}

/** Half of what a minute or a moment may hold; all of it for what is larger than that half, which then waits until it is alone. */
function backgroundLimits(limits: Limits, tokens: number): Limits {
  const { requestsPerMinute, tokensPerMinute, concurrentRequests } = limits;
  const half = (limit: number, atLeast: number) => Math.min(limit, Math.max(Math.floor(limit / 2), atLeast));
  return {
    ...limits,
    ...(requestsPerMinute !== undefined && { requestsPerMinute: half(requestsPerMinute, 1) }),
    ...(tokensPerMinute !== undefined && { tokensPerMinute: half(tokensPerMinute, tokens) }),
    ...(concurrentRequests !== undefined && { concurrentRequests: half(concurrentRequests, 1) }),
  };
}

function standingOf(window: SlidingWindow, limit: number, now: number) {
  return { limit, remaining: Math.max(0, limit - window.total(now)), resetMs: window.emptyAt(now) - now };
}
