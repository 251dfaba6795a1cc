/**
 * Keys: every Redis name and lifetime, for both sides. Names that one script or transaction touches together share a hash tag,
 * so that they live in one slot of a cluster. Nothing here grows with the number of past requests.
 */

/** BullMQ's prefix for the queues of a model; the braces keep one model's queues in one cluster slot. */
export function queuePrefix(model: string): string {
  return `sluice:{${model}}`;
}

/** BullMQ's name of a model's shared queue. */
export const SHARED_QUEUE = 'generate';

/** Record of one job: a stream with one entry an event (field `e`), whose entry id is `<seq + 1>-0`. */
export function generationKey(jobId: string): string {
  return `sluice:gen:{${jobId}}`;
}

/** The attempt that owns a job's record; earlier ones are refused. */
export function fenceKey(jobId: string): string {
  return `sluice:fence:{${jobId}}`;
}

/** Set when the client has left or asked to stop; the batcher sees it within one step. */
export function cancelKey(jobId: string): string {
  return `sluice:cancel:{${jobId}}`;
}

/** What one broker shard tails: a stream with one entry a step and batcher. */
export function outKey(shard: string): string {
  return `sluice:out:{${shard}}`;
}

/** Hash: batcher id to BatcherCard JSON. */
export const BATCHER_CARDS = 'sluice:batchers';

/** What one batcher holds in its prefix cache: a hash of text-block hash to tokens, and the field PREFIX_HEAD. */
export function prefixesKey(batcherId: string): string {
  return `sluice:prefixes:{${batcherId}}`;
}

/** Which state a directory of prefixes is in; longer or shorter than any hash of a text block. */
export const PREFIX_HEAD = 'head';

/** Stream of changes to all batchers' prefixes (field `e`), for whoever has read what they hold. */
export const PREFIX_CHANGES = 'sluice:prefix-changes';

/** After the last event; long enough for a client to come back with Last-Event-ID. */
export const GENERATION_LIFETIME_MS = 10 * 60_000;
/** While a job waits or runs; refreshed by each event. */
export const GENERATION_ACTIVE_LIFETIME_MS = 60 * 60_000;
export const CANCEL_LIFETIME_MS = 60 * 60_000;
/** Entries kept in an `out` stream, approximately: a broker that falls further behind reads `gen` instead. */
export const OUT_STREAM_LENGTH = 10_000;
/** An `out` stream without a batcher that writes to it goes away. */
export const OUT_LIFETIME_MS = 60 * 60_000;

/** A batcher whose card is older than this is not counted on. */
export const CARD_STALE_MS = 5_000;
export const CARD_INTERVAL_MS = 1_000;

/** At most so often a batcher tells what has changed in its prefix cache. */
export const PREFIX_INTERVAL_MS = 200;
/** What a batcher holds is forgotten so long after its last word; it says one three times as often. */
export const PREFIX_LIFETIME_MS = 60_000;
/** Changes in one entry of the stream, and entries kept in it, approximately: who falls further behind reads anew what the batchers hold. */
export const PREFIX_CHANGES_PER_ENTRY = 1_024;
export const PREFIX_STREAM_LENGTH = 1_000;
