/** AdminWireOut: what the admin calls answer with, and how limits come in: snake_case, epoch seconds, null for what is not set. */
import type { BatcherOut, KeyOut, LimitsIn, LimitsOut, TenantOut, UsageOut } from '../../shared/admin-wire.ts';
import { type BatcherCard, isFresh } from '../../shared/batcher-card.ts';
import type { KeyRecord } from '../tenant/key-record.ts';
import type { Limits, LimitsChange } from '../tenant/limits.ts';
import type { UsageRow } from '../tenant/tenant-store.ts';

export function limitsChange(limits: LimitsIn | undefined): LimitsChange {
  return {
    requestsPerMinute: limits?.requests_per_minute,
    tokensPerMinute: limits?.tokens_per_minute,
    concurrentRequests: limits?.concurrent_requests,
    tokensPerDay: limits?.tokens_per_day,
  };
}

function limitsOut(limits: Limits): LimitsOut {
  return {
    requests_per_minute: limits.requestsPerMinute ?? null,
    tokens_per_minute: limits.tokensPerMinute ?? null,
    concurrent_requests: limits.concurrentRequests ?? null,
    tokens_per_day: limits.tokensPerDay ?? null,
  };
}

export function tenantOut(tenant: { name: string; createdAt: number | undefined; limits: Limits; weight: number }): TenantOut {
  return {
    object: 'tenant',
    name: tenant.name,
    created_at: tenant.createdAt === undefined ? null : seconds(tenant.createdAt),
    limits: limitsOut(tenant.limits),
    weight: tenant.weight,
  };
}

export function keyOut(tenant: string, key: KeyRecord): KeyOut {
  return {
    object: 'key',
    id: key.id,
    tenant,
    name: key.name,
    scopes: key.scopes,
    limits: limitsOut(key.limits),
    created_at: seconds(key.createdAt),
    expires_at: key.expiresAt === undefined ? null : seconds(key.expiresAt),
    revoked_at: key.revokedAt === undefined ? null : seconds(key.revokedAt),
  };
}

export function usageOut(row: UsageRow): UsageOut {
  return {
    object: 'usage',
    date: row.date,
    key_id: row.keyId,
    model: row.model,
    requests: row.requests,
    prompt_tokens: row.promptTokens,
    cached_tokens: row.cachedTokens,
    completion_tokens: row.completionTokens,
  };
}

export function batcherOut(card: BatcherCard, now: number): BatcherOut {
  return {
    object: 'batcher',
    id: card.batcherId,
    model: card.model,
    state: isFresh(card, now) ? card.state : 'stale',
    context_tokens: card.contextTokens,
    started_at: seconds(card.startedAt),
    seen_at: seconds(card.writtenAt),
    running_count: card.runningCount,
    waiting_count: card.waitingCount,
    max_running_count: card.maxRunningCount,
    kv_capacity_tokens: card.kvCapacityTokens,
    kv_used_tokens: card.kvUsedTokens,
    prefill_tokens_per_second: card.prefillTokensPerSecond,
    decode_tokens_per_second: card.decodeTokensPerSecond,
    prompt_tokens_per_second_now: card.promptTokensPerSecondNow ?? 0,
    generated_tokens_per_second_now: card.generatedTokensPerSecondNow ?? 0,
    request_tokens_per_second_now: card.requestTokensPerSecondNow ?? 0,
  };
}

function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}
