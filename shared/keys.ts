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

/** BullMQ's name of a model's queue of what needs no row: any of its batchers answers it, however full it is. */
export const QUICK_QUEUE = 'quick';

/** BullMQ's name of the queue that is meant for one batcher of a model. */
export function ownQueue(batcherId: string): string {
  // A colon parts the names of keys, braces their slots.
  return `own-${encodeURIComponent(batcherId)}`;
}

/** The queue that a job was given a place in. */
export function queueNameOf(place: { batcherId?: string | undefined; isQuick?: boolean | undefined }): string {
  if (place.isQuick === true) return QUICK_QUEUE;
  return place.batcherId === undefined ? SHARED_QUEUE : ownQueue(place.batcherId);
}

/** Set: ids of a model's batchers whose own queues are there, so that somebody looks after those of the dead. */
export function ownQueuesKey(model: string): string {
  return `${queuePrefix(model)}:own-queues`;
}

/** How the Redis names of a queue's structures and jobs begin, as BullMQ makes them. */
export function queueBeginning(model: string, queueName: string): string {
  return `${queuePrefix(model)}:${queueName}:`;
}

/** Redis name of one of a queue's structures. */
export function queueKey(model: string, queueName: string, structure: 'wait' | 'active' | 'prioritized' | 'marker'): string {
  return queueBeginning(model, queueName) + structure;
}

/** Hash of a job on a queue. */
export function queuedJobKey(model: string, queueName: string, jobId: string): string {
  return queueBeginning(model, queueName) + jobId;
}

/**
 * Sorted set: up to which virtual time each tenant has used its share of a model, and how late it is. A lane is a class of service of the queues
 * that share their order.
 */
export function fairKey(model: string, lane: string): string {
  return `${queuePrefix(model)}:fair:${lane}`;
}

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

/** What the edge must know to open a job's reply once more. The tenant is part of the name: to anyone else the job does not exist. */
export function replyKey(jobId: string, tenant: string): string {
  return `sluice:reply:{${jobId}}:${tenant}`;
}

/** What a response was asked, as its client may ask for it again; as long as its reply's. */
export function inputKey(jobId: string, tenant: string): string {
  return `${replyKey(jobId, tenant)}:input`;
}

/** Which broker has a client for the job, and that it has; gone RESUME_GRACE after the last client. */
export function listenerKey(jobId: string): string {
  return `sluice:listener:{${jobId}}`;
}

/** Hash: jobs that a shard's brokers have put on a queue and not settled, job id to tenant. */
export function openJobsKey(shard: string): string {
  return `sluice:open:{${shard}}`;
}

/** Which job answers a tenant's Idempotency-Key; `digest` is of both. */
export function idempotencyKey(digest: string): string {
  return `sluice:idempotency:{${digest}}`;
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

/** Asks the batcher of this id to drain: the `startedAt` of the process that is meant, so that its successor goes on. */
export function drainKey(batcherId: string): string {
  return `sluice:drain:{${batcherId}}`;
}
export const DRAIN_LIFETIME_MS = 10 * 60_000;

/** After the last event; long enough for a client to come back with Last-Event-ID. */
export const GENERATION_LIFETIME_MS = 10 * 60_000;
/** The same for what is large and cheap to make again: vectors, lists of tokens. */
export const BULKY_LIFETIME_MS = 60_000;
/** Such events go to a broker's `out` stream only while its entry stays within this size; else the broker reads them from the job's record. */
export const OUT_ENTRY_BYTES = 4_096;
/** While a job waits or runs; refreshed by each event. */
export const GENERATION_ACTIVE_LIFETIME_MS = 60 * 60_000;
/** Of a shard without a broker. */
export const OPEN_JOBS_LIFETIME_MS = 24 * 60 * 60_000;
export const CANCEL_LIFETIME_MS = 60 * 60_000;
/** Entries kept in an `out` stream, approximately: a broker that falls further behind reads `gen` instead. */
export const OUT_STREAM_LENGTH = 10_000;
/** An `out` stream without a batcher that writes to it goes away. */
export const OUT_LIFETIME_MS = 60 * 60_000;

/** A batcher whose card is older than this is not counted on. */
export const CARD_STALE_MS = 5_000;
export const CARD_INTERVAL_MS = 1_000;
/** A gateway reads the cards again when those that it has were read this long ago. */
export const CARD_COPY_MS = 500;

/** At most so often a batcher tells what has changed in its prefix cache. */
export const PREFIX_INTERVAL_MS = 200;
/** What a batcher holds is forgotten so long after its last word; it says one three times as often. */
export const PREFIX_LIFETIME_MS = 60_000;
/** Changes in one entry of the stream, and entries kept in it, approximately: who falls further behind reads anew what the batchers hold. */
export const PREFIX_CHANGES_PER_ENTRY = 1_024;
export const PREFIX_STREAM_LENGTH = 1_000;
