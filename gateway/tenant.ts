/**
 * Tenant: the Durable Object of one tenant: its keys, limits, open requests and usage; a thin host over the pure parts in tenant/.
 * One call lets a request in or refuses it, and what it has answered survives an eviction or a restart.
 */
import { DurableObject } from 'cloudflare:workers';
import type { ApiError, ErrorCode } from '../shared/errors.ts';
import { type Env, readSettings, type Settings } from './env.ts';
import { Account, type Ended, type Request as MeteredRequest, type Standing, type Used } from './tenant/account.ts';
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
  | { outcome: 'admitted'; maxTokens: number | undefined }
  | { outcome: 'refused'; error: RefusedCall }
);

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

const MAX_KEYS = 1_000;
const KEY_ID_LENGTH = 12;
const KEY_ID_LETTERS = 'abcdefghijklmnopqrstuvwxyz234567';
/** A lease whose broker died before it named the model. */
const UNKNOWN_MODEL = 'unknown';

export class Tenant extends DurableObject<Env> {
  readonly #settings: Settings;
  #store: TenantStore;
  #keys: Map<string, KeyRecord>;
  #account: Account;
  /** Models of running requests, as their brokers say. */
  readonly #models = new Map<string, string>();
  #isAlarmSet = false;

  constructor(state: DurableObjectState, env: Env) {
    super(state, env);
    this.#settings = readSettings(env);
    this.#store = new TenantStore(state.storage.sql);
    this.#keys = new Map(this.#store.keys().map(key => [key.id, key]));
    this.#account = this.#recall();
    if (this.#account.openCount > 0) this.#armAlarm();
  }

  /** Lets a request in, with a reservation that settle ends. */
  admit(request: MeteredRequest, scope: Scope): AdmitReply {
    const now = Date.now();
    const fault = this.#fault(request.keyId, scope, now);
    if (fault !== undefined) return { outcome: 'refused', standing: undefined, error: plain(fault) };
    const admission = this.#account.admit(request, now);
    const standing = this.#account.standing(request.keyId, now);
    if (admission.outcome === 'refused') return { outcome: 'refused', standing, error: plain(limitRefusal(admission, now)) };
    this.#store.putLease(admission.lease);
    this.#armAlarm();
    return { outcome: 'admitted', standing, maxTokens: admission.maxTokens };
  }

  /** Whether the key may do this, and how it stands; counts nothing. */
  look(keyId: string, scope: Scope): AdmitReply {
    const now = Date.now();
    const fault = this.#fault(keyId, scope, now);
    if (fault !== undefined) return { outcome: 'refused', standing: undefined, error: plain(fault) };
    return { outcome: 'admitted', standing: this.#account.standing(keyId, now), maxTokens: undefined };
  }

  /** More prompt than was estimated: the refusal when the limits have no room for it. */
  extend(id: string, promptTokens: number): RefusedCall | undefined {
    const now = Date.now();
    const extension = this.#account.extend(id, promptTokens, now);
    if (extension?.outcome === 'refused') return plain(limitRefusal(extension, now));
    if (extension !== undefined) this.#store.putLease(extension.lease);
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
    if (this.#account.openCount > 0) this.#armAlarm();
  }

  limits(): Limits {
    return this.#store.limits();
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
    return this.#store.usage(range);
  }

  /** Keys, limits and ledger are gone; so is the right of every key to anything. */
  async erase(): Promise<void> {
    await this.ctx.storage.deleteAlarm();
    await this.ctx.storage.deleteAll();
    this.#isAlarmSet = false;
    this.#models.clear();
    this.#store = new TenantStore(this.ctx.storage.sql);
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

function plain(error: ApiError): RefusedCall {
  return { code: error.code, message: error.message, param: error.param, retryAfterSeconds: error.retryAfterSeconds };
}
