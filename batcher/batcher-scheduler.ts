/** BatcherScheduler: scheduler and KV bookkeeping as a batcher opens them, so that a simulation of one decides as it does. */
import { KvCache, type StoreListener } from './kv/kv-cache.ts';
import { Scheduler } from './scheduler/scheduler.ts';
import { schedulerSettings } from './scheduler/scheduler-settings.ts';

export const BLOCK_TOKENS = 16;
/** Rows of 4-bit matrices round otherwise in a batch of one than in any larger one (measured), so a reproducible batch has two at least. */
export const REPRODUCIBLE_ROWS = 2;
/** Drafts help where a step's time hardly depends on its tokens, which on a CPU is so for few rows only. */
export const SPECULATION_ROWS = 4;
export const MAX_DRAFTS = 8;

export interface BatcherSchedulerOptions {
  maxRunning: number;
  maxBatchedTokens: number;
  contextTokens: number;
  /** Blocks that rows and prefix store may hold together. */
  budgetBlocks: number;
  /** Of them, those that the store may hold; all when absent. */
  storeBlocks?: number;
  clock(): number;
  listener?: StoreListener | undefined;
}

/** Rows of the KV cache of a batcher that runs so many sequences. */
export function rowCountFor(maxRunning: number): number {
  return Math.max(maxRunning, REPRODUCIBLE_ROWS);
}

export function openScheduler(options: BatcherSchedulerOptions): { scheduler: Scheduler; kv: KvCache } {
  const { maxBatchedTokens, contextTokens, budgetBlocks, storeBlocks = budgetBlocks, clock, listener } = options;
  const rowCount = rowCountFor(options.maxRunning);
  const kv = new KvCache({ blockTokens: BLOCK_TOKENS, budgetBlocks, storeBlocks, rowCount }, listener);
  const settings = schedulerSettings({
    maxRunning: rowCount,
    maxDraftTokens: MAX_DRAFTS,
    speculationMaxRunning: SPECULATION_ROWS,
    maxBatchedTokens: Math.max(maxBatchedTokens, rowCount + 16),
  });
  return { scheduler: new Scheduler({ settings, kv, contextTokens, clock }), kv };
}
