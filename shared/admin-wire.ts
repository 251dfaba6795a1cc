/** AdminWire: the bodies and replies of the calls under /admin, for the gateway that answers them and the command that makes them. */
import { z } from 'zod';

/** Inner hyphens are allowed; a key is read from its end, so they part nothing. */
export const TENANT_PATTERN = '[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?';

export const TenantName = z
  .string()
  .regex(new RegExp(`^${TENANT_PATTERN}$`), '1 to 32 lower-case letters, digits and inner hyphens are expected');

/** The largest is what an absent limit comes to. */
const Limit = z.int().min(1).max(1_000_000_000);

/** Absent leaves a limit as it is, null takes it away. */
export const LimitsIn = z.strictObject({
  requests_per_minute: Limit.nullish(),
  tokens_per_minute: Limit.nullish(),
  concurrent_requests: Limit.nullish(),
  tokens_per_day: Limit.nullish(),
});
export type LimitsIn = z.infer<typeof LimitsIn>;

/** A tenant's share of the batchers while others wait too, to theirs. */
const Weight = z.number().min(0.01).max(100);

const KeyName = z.string().trim().min(1).max(64);
const Scopes = z
  .array(z.enum(['infer', 'admin']))
  .min(1)
  .max(2);
/** Epoch seconds, as in all of OpenAI's objects. */
const Expiry = z.int().min(1).max(253_402_300_799);

/** POST /admin/tenants: makes the tenant, or changes the one that is there. */
export const TenantIn = z.strictObject({ name: TenantName, limits: LimitsIn.optional(), weight: Weight.optional() });

/** POST /admin/keys; makes the tenant too when it is not there. */
export const KeyIn = z.strictObject({
  tenant: TenantName,
  name: KeyName.optional(),
  scopes: Scopes.optional(),
  expires_at: Expiry.nullish(),
  limits: LimitsIn.optional(),
});

/** POST /admin/keys/{id}. */
export const KeyChangeIn = z.strictObject({
  tenant: TenantName,
  name: KeyName.optional(),
  scopes: Scopes.optional(),
  expires_at: Expiry.nullish(),
  limits: LimitsIn.optional(),
});

/** Null is no limit. */
export interface LimitsOut {
  requests_per_minute: number | null;
  tokens_per_minute: number | null;
  concurrent_requests: number | null;
  tokens_per_day: number | null;
}

export interface TenantOut {
  object: 'tenant';
  name: string;
  created_at: number | null;
  limits: LimitsOut;
  /** Its share of the batchers while others wait too, to theirs; 1 unless set. */
  weight: number;
}

export interface KeyOut {
  object: 'key';
  id: string;
  tenant: string;
  name: string;
  scopes: ('infer' | 'admin')[];
  limits: LimitsOut;
  created_at: number;
  expires_at: number | null;
  revoked_at: number | null;
  /** Only in the reply that makes it; it is kept nowhere. */
  key?: string;
}

export interface UsageOut {
  object: 'usage';
  /** UTC day on which the requests were let in. */
  date: string;
  key_id: string;
  model: string;
  requests: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
}

export interface BatcherOut {
  object: 'batcher';
  id: string;
  model: string;
  /** `stale`: it has not been heard of for some seconds. */
  state: 'serving' | 'draining' | 'stale';
  context_tokens: number;
  started_at: number;
  seen_at: number;
  running_count: number;
  waiting_count: number;
  max_running_count: number;
  kv_capacity_tokens: number;
  kv_used_tokens: number;
  /** While it works, as measured lately. */
  prefill_tokens_per_second: number;
  decode_tokens_per_second: number;
  /** What it does now: of prompts, of answers, all requests together; and of one answer. */
  prompt_tokens_per_second_now: number;
  generated_tokens_per_second_now: number;
  request_tokens_per_second_now: number;
}

export interface QueueOut {
  object: 'queue';
  model: string;
  /** `shared` by the model's batchers, `own` for one of them, `quick` for what needs no row. */
  kind: 'shared' | 'own' | 'quick';
  /** Whose own. */
  batcher_id: string | null;
  waiting_count: number;
}

export interface ListOut<T> {
  object: 'list';
  data: T[];
  /** More than fit in this reply. */
  has_more: boolean;
}
