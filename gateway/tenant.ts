/**
 * Tenant: the Durable Object of one tenant: its keys, limits, open requests and usage; a thin host over the pure parts in tenant/.
 * One call lets requests in or refuses them, and what it has answered survives an eviction.
 */
import { DurableObject } from 'cloudflare:workers';
import type { ApiError, ErrorCode } from '../shared/errors.ts';
import { type Env, readSettings, type Settings } from './env.ts';
import { ResponseCache } from './response-cache.ts';
import { Account, type Ended, type Request as MeteredRequest, type Refused, type Standing, type Used } from './tenant/account.ts';
import { DEVELOPMENT_KEY_ID, type KeyRecord, keyFault, type Scope } from './tenant/key-record.ts';
import { limitRefusal } from './tenant/limit-refusal.ts';
import { changedLimits, type Limits, type LimitsChange, NO_LIMITS } from './tenant/limits.ts';
import { TenantStore, type UsageRow } from './tenant/tenant-store.ts';

/** An error crosses from object to Worker as plain data. */
export interface RefusedCall {
  code: ErrorCode;
  message: string;
  param: string | undefined;
  retryAfterSeconds: number | undefined;
}

export type AdmitReply = { standing: Standing | undefined } & (
  | { outcome: 'admitted'; maxTokens: number | undefined; weight: number }
  /** Nothing is to be done: the answer is here, as it was kept. */
  | { outcome: 'answered'; reply: string }
  /** `closedUntil`: until then no request of this key fits, whatever it asks for. */
  | { outcome: 'refused'; error: RefusedCall; closedUntil?: number; tokensClosed?: TokensClosed }
);

/** A request that wants to be let in. */
export interface Application {
  request: MeteredRequest;
  /** Under which an answer to it may have been kept. */
  cacheKey: string | undefined;
}

/** No request of this key that wants more than `room` tokens fits before `until`; one of up to `wanted` fits at `retryAt`. */
export interface TokensClosed {
  room: number;
  wanted: number;
  until: number;
  retryAt: number;
}

/** One request's end. Undefined `used`: it was refused after all, and costs nothing. */
export interface Settlement {
  id: string;
  model: string;
  used: Used | undefined;
}

export interface KeyPlan {
  name: string;
  scopes: Scope[];
  expiresAt: number | undefined;
  limits: LimitsChange;
}

/** Absent fields stay as they are. */
export interface KeyChange {
  name?: string | undefined;
  scopes?: Scope[] | undefined;
  expiresAt?: number | null | undefined;
  limits?: LimitsChange | undefined;
}

/**
 * A commit takes about a millisecond of the processor, many times a request's own accounting, and holds the whole process up until the disk
 * has it, which took 6 ms (measured). So what comes all the time is written more seldom than what comes now and then.
 */
const WRITE_AFTER_MS = 50;
const WRITE_PAUSE_MS = 250;
/** A settlement takes some milliseconds from the last byte of an answer: brokers let it wait for company. */
const SETTLEMENT_WAIT_MS = 40;
const MAX_KEYS = 1_000;
const KEY_ID_LENGTH = 12;
const KEY_ID_LETTERS = 'abcdefghijklmnopqrstuvwxyz234567';
/** A lease whose broker died before it named the model. */
const UNKNOWN_MODEL = 'unknown';
/** In the ledger, of requests that no model had to answer. */
const CACHED_MODEL = 'response-cache';
const NOTHING_USED: Used = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };

export class Tenant extends DurableObject<Env> {
  readonly #settings: Settings;
  #store: TenantStore;
  #replies: ResponseCache;
  #keys: Map<string, KeyRecord>;
  #account: Account;
  /** Models of running requests, as their brokers say. */
  readonly #models = new Map<string, string>();
  #isAlarmSet = false;
  #isWriting = false;
  #writtenAt = 0;
  #settled = Promise.withResolvers<void>();

  constructor(state: DurableObjectState, env: Env) {
    super(state, env);
    this.#settings = readSettings(env);
    this.#store = new TenantStore(state.storage.sql);
    this.#replies = this.#openReplies();
    this.#keys = new Map(this.#store.keys().map(key => [key.id, key]));
    this.#account = this.#recall();
    if (this.#account.openCount > 0) this.#armAlarm();
  }

  /**
   * What a broker has for it, in one call: how requests have ended, then requests that want to be let in, with a reservation each that a
   * settlement ends. Undefined for one that may fit when others' settlements have come: it is to be tried by itself, by admit.
   */
  serve(settlements: Settlement[], applications: Application[]): (AdmitReply | undefined)[] {
    if (settlements.length > 0) this.settle(settlements);
    return applications.map(application => {
      const { reply, mayEndSoon } = this.#decide(application);
      return mayEndSoon ? undefined : reply;
    });
  }

  /** Waits a moment where that may help. */
  async admit(application: Application): Promise<AdmitReply> {
    const { reply, mayEndSoon } = this.#decide(application);
    if (!mayEndSoon) return reply;
    await this.#nextSettlement();
    return this.#decide(application).reply;
  }

  #decide({ request, cacheKey }: Application): { reply: AdmitReply; mayEndSoon: boolean } {
    const now = Date.now();
    const fault = this.#fault(request.keyId, 'infer', now);
    if (fault !== undefined) return decided({ outcome: 'refused', standing: undefined, error: plain(fault) });
    const kept = cacheKey === undefined ? undefined : this.#replies.find(cacheKey, now);
    if (kept !== undefined) return decided(this.#answer(request, kept, now));
    const admission = this.#account.admit(request, now);
    const standing = this.#account.standing(request.keyId, now);
    if (admission.outcome === 'refused') {
      return { reply: { ...refusedBy(admission, now), standing }, mayEndSoon: this.#mayEndSoon(admission) };
    }
    this.#store.putLease(admission.lease);
    this.#writeSoon();
    this.#armAlarm();
    return decided({ outcome: 'admitted', standing, maxTokens: admission.maxTokens, weight: this.#store.weight() });
  }

  /** A request that an earlier answer answers counts as a request, and as no tokens. */
  #answer(request: MeteredRequest, reply: string, now: number): AdmitReply {
    const admission = this.#account.admit({ ...request, promptTokens: 0, maxTokens: 0, minTokens: 0 }, now);
    const standing = this.#account.standing(request.keyId, now);
    if (admission.outcome === 'refused') return { ...refusedBy(admission, now), standing };
    const ended = this.#account.settle(request.id, NOTHING_USED, now);
    if (ended !== undefined) this.#write(ended, CACHED_MODEL, now);
    return { outcome: 'answered', standing, reply };
  }

  /** An answer that later requests of the same content get. */
  keepReply(cacheKey: string, reply: string): void {
    this.#replies.put(cacheKey, reply, Date.now());
  }

  /** Whether the key may do this, and how it stands; counts nothing. */
  look(keyId: string, scope: Scope): AdmitReply {
    const now = Date.now();
    const fault = this.#fault(keyId, scope, now);
    if (fault !== undefined) return { outcome: 'refused', standing: undefined, error: plain(fault) };
    return { outcome: 'admitted', standing: this.#account.standing(keyId, now), maxTokens: undefined, weight: this.#store.weight() };
  }

  /** More prompt than was estimated: the refusal when the limits have no room for it. */
  extend(id: string, promptTokens: number): RefusedCall | undefined {
    const now = Date.now();
    const extension = this.#account.extend(id, promptTokens, now);
    if (extension?.outcome === 'refused') return plain(limitRefusal(extension, now));
    if (extension !== undefined) {
      this.#store.putLease(extension.lease);
      this.#writeSoon();
    }
    return undefined;
  }

  /** Their broker lives and has got this far with them. */
  renew(progress: (Settlement & { used: Used })[]): void {
    const now = Date.now();
    for (const { id, used, model } of progress) if (this.#account.renew(id, used, now)) this.#models.set(id, model);
  }

  /** Each at most once; what is over already is left alone. */
  settle(settlements: Settlement[]): void {
    const now = Date.now();
    for (const { id, used, model } of settlements) {
      const ended = this.#account.settle(id, used, now);
      if (ended !== undefined) this.#write(ended, model, now);
    }
    this.#settled.resolve();
    this.#settled = Promise.withResolvers();
  }

  override alarm(): void {
    const now = Date.now();
    this.#isAlarmSet = false;
    for (const ended of this.#account.expire(now)) {
      const model = this.#models.get(ended.lease.id) ?? UNKNOWN_MODEL;
      console.log(JSON.stringify({ at: new Date(now).toISOString(), event: 'lease_expired', jobId: ended.lease.id }));
      this.#write(ended, model, now);
    }
    this.#store.prune(now);
    this.#replies.prune(now);
    if (this.#account.openCount > 0) this.#armAlarm();
  }

  limits(): Limits {
    return this.#store.limits();
  }

  /** Its share of the batchers while others wait too, to theirs. */
  weight(): number {
    return this.#store.weight();
  }

  setWeight(weight: number): void {
    this.#store.setWeight(weight);
  }

  setLimits(change: LimitsChange): Limits {
    const limits = changedLimits(this.#store.limits(), change);
    this.#store.setLimits(limits);
    this.#account.setTenantLimits(limits);
    return limits;
  }

  keys(): KeyRecord[] {
    return [...this.#keys.values()];
  }

  /** Undefined when the tenant has as many keys in use as it may. */
  createKey(plan: KeyPlan): KeyRecord | undefined {
    if (this.#keys.size >= MAX_KEYS) {
      const oldest = [...this.#keys.values()].find(key => key.revokedAt !== undefined);
      if (oldest === undefined) return undefined;
      this.#keys.delete(oldest.id);
      this.#store.forgetKey(oldest.id);
    }
    const record: KeyRecord = {
      id: this.#freshKeyId(),
      name: plan.name,
      scopes: plan.scopes,
      limits: changedLimits(NO_LIMITS, plan.limits),
      createdAt: Date.now(),
      expiresAt: plan.expiresAt,
      revokedAt: undefined,
    };
    this.#putKey(record);
    return record;
  }

  /** Undefined when there is no such key. */
  changeKey(id: string, change: KeyChange): KeyRecord | undefined {
    const record = this.#keys.get(id);
    if (record === undefined) return undefined;
    const changed: KeyRecord = {
      ...record,
      name: change.name ?? record.name,
      scopes: change.scopes ?? record.scopes,
      expiresAt: change.expiresAt === undefined ? record.expiresAt : (change.expiresAt ?? undefined),
      limits: changedLimits(record.limits, change.limits ?? {}),
    };
    this.#putKey(changed);
    return changed;
  }

  /** From now on the key is refused. Undefined when there is no such key. */
  revokeKey(id: string): KeyRecord | undefined {
    const record = this.#keys.get(id);
    if (record === undefined) return undefined;
    const revoked = { ...record, revokedAt: record.revokedAt ?? Date.now() };
    this.#putKey(revoked);
    return revoked;
  }

  usage(range: { fromDay: number; toDay: number; limit: number }): UsageRow[] {
    this.#store.flush();
    return this.#store.usage(range);
  }

  /** Keys, limits and ledger are gone; so is the right of every key to anything. */
  async erase(): Promise<void> {
    await this.ctx.storage.deleteAlarm();
    await this.ctx.storage.deleteAll();
    this.#isAlarmSet = false;
    this.#models.clear();
    this.#store = new TenantStore(this.ctx.storage.sql);
    this.#replies = this.#openReplies();
    this.#keys = new Map();
    this.#account = this.#recall();
  }

  #recall(): Account {
    const now = Date.now();
    const account = new Account({
      limits: this.#store.limits(),
      limitsOfKey: id => this.#keys.get(id)?.limits ?? NO_LIMITS,
      leaseMs: this.#settings.leaseMs,
      defaultMaxTokens: this.#settings.reservedTokens,
    });
    this.#store.replay(account, now);
    return account;
  }

  #openReplies(): ResponseCache {
    const { maxCacheBytes, cacheLifetimeMs } = this.#settings;
    return new ResponseCache(this.ctx.storage.sql, { maxBytes: maxCacheBytes, lifetimeMs: cacheLifetimeMs });
  }

  #fault(keyId: string, scope: Scope, now: number): ApiError | undefined {
    return keyId === DEVELOPMENT_KEY_ID ? undefined : keyFault(this.#keys.get(keyId), scope, now);
  }

  #putKey(record: KeyRecord): void {
    this.#keys.set(record.id, record);
    this.#store.putKey(record);
    this.#account.setKeyLimits(record.id, record.limits);
  }

  #freshKeyId(): string {
    for (;;) {
      const bytes = crypto.getRandomValues(new Uint8Array(KEY_ID_LENGTH));
      const id = Array.from(bytes, byte => KEY_ID_LETTERS[byte % KEY_ID_LETTERS.length]).join('');
      if (!this.#keys.has(id)) return id;
    }
  }

  #write(ended: Ended, model: string, now: number): void {
    this.#models.delete(ended.lease.id);
    this.#store.end(ended, model, now);
    this.#writeSoon();
  }

  /** Many requests are written together. A process that ends may take this time's with it; an eviction comes long after it. */
  #writeSoon(): void {
    if (this.#isWriting) return;
    this.#isWriting = true;
    const now = Date.now();
    // A clock that was set back is no reason to wait for longer than the pause.
    const pauseMs = Math.min(WRITE_PAUSE_MS, this.#writtenAt + WRITE_PAUSE_MS - now);
    setTimeout(
      () => {
        this.#isWriting = false;
        this.#writtenAt = Date.now();
        this.#store.flush();
      },
      Math.max(WRITE_AFTER_MS, pauseMs),
    );
  }

  /**
   * Who sends one request after the other is a moment faster than the settlement of the one before, which may be what is in the way.
   * The number of requests a minute is not changed by one.
   */
  #mayEndSoon({ shortage }: Refused): boolean {
    return this.#account.openCount > 0 && shortage.unit !== 'requests per minute' && shortage.retryAt !== undefined;
  }

  async #nextSettlement(): Promise<void> {
    await Promise.race([this.#settled.promise, new Promise(resolve => setTimeout(resolve, SETTLEMENT_WAIT_MS))]);
  }

  /** One alarm at a time, so that a request costs no write for it. */
  #armAlarm(): void {
    if (this.#isAlarmSet) return;
    this.#isAlarmSet = true;
    void this.ctx.storage.setAlarm(Math.max(this.#account.nextExpiry ?? 0, Date.now() + ALARM_PAUSE_MS));
  }
}

/** Leases are renewed before they expire, so the first to expire moves on all the time. */
const ALARM_PAUSE_MS = 1_000;

function decided(reply: AdmitReply): { reply: AdmitReply; mayEndSoon: boolean } {
  return { reply, mayEndSoon: false };
}

function refusedBy(
  refused: Refused,
  now: number,
): { outcome: 'refused'; error: RefusedCall; closedUntil?: number; tokensClosed?: TokensClosed } {
  const { unit, retryAt, firm, wantedCount: wanted } = refused.shortage;
  const error = plain(limitRefusal(refused, now));
  if (retryAt === undefined) return { outcome: 'refused', error };
  if (unit === 'requests per minute') return { outcome: 'refused', error, closedUntil: retryAt };
  if (firm === undefined || wanted <= firm.room) return { outcome: 'refused', error };
  return { outcome: 'refused', error, tokensClosed: { room: firm.room, wanted, until: firm.until, retryAt } };
}

function plain(error: ApiError): RefusedCall {
  return { code: error.code, message: error.message, param: error.param, retryAfterSeconds: error.retryAfterSeconds };
}
