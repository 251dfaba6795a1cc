/**
 * Account: who of a tenant's requests may go in, and what each of them has taken; pure, so the tenant's object can be evicted and its
 * account told again. Every request that was let in is ended exactly once: settled by its broker, or expired when its broker is gone.
 *
 *   admit ──▶ lease ──renew, extend──▶ lease ──settle──▶ used or refused
 *                                        └──── expire ──▶ used, as far as is known
 */
import { hasTokenLimit, type Limits } from './limits.ts';
import { Meter, type Shortage } from './meter.ts';

export interface Request {
  /** The job's id. */
  id: string;
  keyId: string;
  /** Estimated; corrected by extend and settle. */
  promptTokens: number;
  /** Of one choice; undefined when the client named no bound. */
  maxTokens: number | undefined;
  minTokens: number;
  choiceCount: number;
  /** Let in only where it leaves half of what is limited at a time to the others. */
  isBackground?: boolean;
}

export interface Lease {
  id: string;
  keyId: string;
  admittedAt: number;
  promptTokens: number;
  reservedTokens: number;
}

/** What a request has used, at its end or so far. */
export interface Used {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
}

/** For OpenAI's six headers; of key and tenant always the one that leaves less. */
export interface Standing {
  requests: { limit: number; remaining: number; resetMs: number };
  tokens: { limit: number; remaining: number; resetMs: number };
}

export interface Refused {
  outcome: 'refused';
  whose: 'key' | 'tenant';
  shortage: Shortage;
}

export type Admission = { outcome: 'admitted'; lease: Lease; maxTokens: number | undefined } | Refused;
export type Extension = { outcome: 'extended'; lease: Lease } | Refused;

/** A lease that is over, and what is to be written down of it; undefined when it cost nothing. */
export interface Ended {
  lease: Lease;
  used: Used | undefined;
}

export interface AccountOptions {
  limits: Limits;
  limitsOfKey(keyId: string): Limits;
  /** After this long without a word of its broker a request counts as ended. */
  leaseMs: number;
  /** Reserved for an answer whose request names no bound; under a token limit also its bound. */
  defaultMaxTokens: number;
}

interface OpenLease {
  lease: Lease;
  expiresAt: number;
  /** As far as is known. */
  used: Used;
}

/** How long requests are open; a guess until the first has ended. */
const FIRST_OPEN_FOR_MS = 1_000;
const OPEN_FOR_WEIGHT = 0.2;

export class Account {
  readonly #options: AccountOptions;
  readonly #tenant: Meter;
  readonly #keys = new Map<string, Meter>();
  readonly #leases = new Map<string, OpenLease>();
  #openForMs = FIRST_OPEN_FOR_MS;
  #latest = 0;

  constructor(options: AccountOptions) {
    this.#options = options;
    this.#tenant = new Meter(options.limits);
  }

  /** A refusal changes nothing. The same request twice is let in once. */
  admit(request: Request, at: number): Admission {
    const now = this.#clock(at);
    const key = this.#key(request.keyId);
    const known = this.#leases.get(request.id);
    const bound = this.#bound(request, key);
    if (known !== undefined) return { outcome: 'admitted', lease: known.lease, maxTokens: bound.isBinding ? bound.maxTokens : undefined };
    const reservedTokens = request.promptTokens + bound.maxTokens * request.choiceCount;
    const context = { now, openForMs: this.#openForMs, isBackground: request.isBackground === true };
    const refused = worst([
      ...key.shortages(reservedTokens, context).map(shortage => refusal('key', shortage)),
      ...this.#tenant.shortages(reservedTokens, context).map(shortage => refusal('tenant', shortage)),
    ]);
    if (refused !== undefined) return refused;
    const lease: Lease = {
      id: request.id,
      keyId: request.keyId,
      admittedAt: now,
      promptTokens: request.promptTokens,
      reservedTokens,
    };
    this.#open(lease, now);
    return { outcome: 'admitted', lease, maxTokens: bound.isBinding ? bound.maxTokens : undefined };
  }

  /** More prompt than was estimated: the lease with room for it, or what is in the way; undefined when it is over already. */
  extend(id: string, promptTokens: number, at: number): Extension | undefined {
    const now = this.#clock(at);
    const open = this.#leases.get(id);
    if (open === undefined) return undefined;
    const { lease } = open;
    const more = promptTokens - lease.promptTokens;
    if (more <= 0) return { outcome: 'extended', lease };
    const key = this.#key(lease.keyId);
    const refused = worst([
      ...key.tokenShortages(more, { now, reserved: lease.reservedTokens }).map(shortage => refusal('key', shortage)),
      ...this.#tenant.tokenShortages(more, { now, reserved: lease.reservedTokens }).map(shortage => refusal('tenant', shortage)),
    ]);
    if (refused !== undefined) return refused;
    for (const meter of [this.#tenant, key]) meter.extend(more, lease.admittedAt, now);
    open.lease = { ...lease, promptTokens, reservedTokens: lease.reservedTokens + more };
    return { outcome: 'extended', lease: open.lease };
  }

  /** Its broker lives, and has got this far with it. False for a lease that is over. */
  renew(id: string, used: Used, at: number): boolean {
    const open = this.#leases.get(id);
    if (open === undefined) return false;
    open.expiresAt = this.#clock(at) + this.#options.leaseMs;
    open.used = used;
    return true;
  }

  /** Undefined `used`: it was refused after all, and costs nothing. Undefined result: it is over already. */
  settle(id: string, used: Used | undefined, at: number): Ended | undefined {
    const open = this.#leases.get(id);
    return open === undefined ? undefined : this.#end(open, used, this.#clock(at));
  }

  /** Ends what no broker has spoken of for too long, at what was last known of it. */
  expire(at: number): Ended[] {
    const now = this.#clock(at);
    return [...this.#leases.values()].filter(open => open.expiresAt <= now).map(open => this.#end(open, open.used, now));
  }

  /** After a restart: a lease that was open. Its broker gets the time to say that it lives. */
  recallLease(lease: Lease, at: number): void {
    this.#open(lease, this.#clock(at));
  }

  /** After a restart: what a key's ended requests, let in at `at`, used. */
  recallSpent(past: { keyId: string; requests: number; tokens: number; at: number }, at: number): void {
    const now = this.#clock(at);
    for (const meter of [this.#tenant, this.#key(past.keyId)]) meter.recall(past, now);
  }

  /** After a restart: what a key's ended requests of today used. */
  recallDay(past: { keyId: string; tokens: number }, at: number): void {
    const now = this.#clock(at);
    for (const meter of [this.#tenant, this.#key(past.keyId)]) meter.recallDay(past.tokens, now);
  }

  standing(keyId: string, at: number): Standing {
    const now = this.#clock(at);
    const key = this.#key(keyId);
    return {
      requests: tighter(this.#tenant.requests(now), key.requests(now)),
      tokens: tighter(this.#tenant.tokens(now), key.tokens(now)),
    };
  }

  /** Of the tenant, today in UTC: used and reserved. */
  dayTokens(at: number): number {
    return this.#tenant.dayTokens(this.#clock(at));
  }

  setTenantLimits(limits: Limits): void {
    this.#tenant.limits = limits;
  }

  setKeyLimits(keyId: string, limits: Limits): void {
    this.#key(keyId).limits = limits;
  }

  get openCount(): number {
    return this.#leases.size;
  }

  /** Of the first lease to expire. */
  get nextExpiry(): number | undefined {
    let next: number | undefined;
    for (const { expiresAt } of this.#leases.values()) next = Math.min(next ?? expiresAt, expiresAt);
    return next;
  }

  check(): void {
    for (const meter of [this.#tenant, ...this.#keys.values()]) meter.check();
    const openCount = [...this.#keys.values()].reduce((sum, meter) => sum + meter.openCount, 0);
    if (openCount !== this.#leases.size || this.#tenant.openCount !== openCount) throw new Error('open requests and leases differ');
  }

  #open(lease: Lease, now: number): void {
    for (const meter of [this.#tenant, this.#key(lease.keyId)]) meter.take(lease.reservedTokens, lease.admittedAt, now);
    this.#leases.set(lease.id, {
      lease,
      expiresAt: now + this.#options.leaseMs,
      used: { promptTokens: lease.promptTokens, cachedTokens: 0, completionTokens: 0 },
    });
  }

  #end(open: OpenLease, used: Used | undefined, now: number): Ended {
    const { lease } = open;
    this.#leases.delete(lease.id);
    const tokens = used === undefined ? undefined : used.promptTokens + used.completionTokens;
    for (const meter of [this.#tenant, this.#key(lease.keyId)]) meter.end(lease, tokens, now);
    this.#openForMs += OPEN_FOR_WEIGHT * (now - lease.admittedAt - this.#openForMs);
    return { lease, used };
  }

  /** How many tokens each choice may have. Without a bound of the client's the limits need one: at most what they allow a lone request. */
  #bound(request: Request, key: Meter): { maxTokens: number; isBinding: boolean } {
    if (request.maxTokens !== undefined) return { maxTokens: request.maxTokens, isBinding: false };
    let maxTokens = Math.max(this.#options.defaultMaxTokens, request.minTokens);
    const all = [this.#tenant.limits, key.limits];
    for (const { tokensPerMinute, tokensPerDay } of all) {
      for (const limit of [tokensPerMinute, tokensPerDay]) {
        if (limit !== undefined) maxTokens = Math.min(maxTokens, Math.floor((limit - request.promptTokens) / request.choiceCount));
      }
    }
    return { maxTokens: Math.max(maxTokens, request.minTokens, 1), isBinding: all.some(hasTokenLimit) };
  }

  #key(id: string): Meter {
    let meter = this.#keys.get(id);
    if (meter === undefined) {
      meter = new Meter(this.#options.limitsOfKey(id));
      this.#keys.set(id, meter);
    }
    return meter;
  }

  /** Time never goes back, though clocks do. */
  #clock(at: number): number {
    this.#latest = Math.max(this.#latest, at);
    return this.#latest;
  }
}

function refusal(whose: Refused['whose'], shortage: Shortage): Refused {
  return { outcome: 'refused', whose, shortage };
}

/** Of all that is in the way, what takes longest to go; what never goes first of all. */
function worst(refusals: Refused[]): Refused | undefined {
  const until = ({ shortage }: Refused) => shortage.retryAt ?? Number.POSITIVE_INFINITY;
  return refusals.reduce<Refused | undefined>((most, one) => (most === undefined || until(one) > until(most) ? one : most), undefined);
}

function tighter<T extends { remaining: number }>(tenant: T, key: T): T {
  return key.remaining <= tenant.remaining ? key : tenant;
}
