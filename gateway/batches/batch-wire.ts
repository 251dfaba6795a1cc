/** BatchWire: files and batches as OpenAI's objects, and the body that makes a batch. */
import { z } from 'zod';
import type { BatchEndpoint } from './batch-input.ts';
import { BATCH_ENDPOINTS } from './batch-input.ts';
import type { BatchFault, BatchRecord, BatchState } from './batch-store.ts';
import type { FilePurpose, StoredFile } from './file-store.ts';

export const COMPLETION_WINDOW = '24h';
export const COMPLETION_WINDOW_MS = 24 * 60 * 60_000;

const MAX_METADATA = 16;
const MIN_LIFETIME_S = 3_600;
const MAX_LIFETIME_S = 2_592_000;

export const BatchBody = z.looseObject({
  input_file_id: z.string().min(1).max(128).describe('A file of the purpose `batch`, one request a line.'),
  endpoint: z.enum(BATCH_ENDPOINTS).describe('Where all of its requests go.'),
  completion_window: z.literal(COMPLETION_WINDOW).describe('What is not done by then is not done.'),
  metadata: z
    .record(z.string().min(1).max(64), z.string().max(512))
    .refine(metadata => Object.keys(metadata).length <= MAX_METADATA, { message: `'metadata' may have at most ${MAX_METADATA} entries.` })
    .nullish(),
  output_expires_after: z
    .object({ anchor: z.literal('created_at'), seconds: z.int().min(MIN_LIFETIME_S).max(MAX_LIFETIME_S) })
    .nullish()
    .describe('How long the results are kept.'),
});

export interface FileOut {
  id: string;
  object: 'file';
  bytes: number;
  created_at: number;
  expires_at: number;
  filename: string;
  purpose: FilePurpose;
  status: 'processed';
  status_details: null;
}

export interface DeletedFileOut {
  id: string;
  object: 'file';
  deleted: true;
}

export interface BatchOut {
  id: string;
  object: 'batch';
  endpoint: BatchEndpoint;
  errors: { object: 'list'; data: BatchFault[] } | null;
  input_file_id: string;
  completion_window: string;
  status: BatchState;
  output_file_id: string | null;
  error_file_id: string | null;
  created_at: number;
  in_progress_at: number | null;
  expires_at: number;
  finalizing_at: number | null;
  completed_at: number | null;
  failed_at: number | null;
  expired_at: number | null;
  cancelling_at: number | null;
  cancelled_at: number | null;
  request_counts: { total: number; completed: number; failed: number };
  usage: {
    input_tokens: number;
    input_tokens_details: { cached_tokens: number };
    output_tokens: number;
    output_tokens_details: { reasoning_tokens: number };
    total_tokens: number;
  };
  metadata: Record<string, string> | null;
}

export function fileOut({ id, bytes, createdAt, expiresAt, filename, purpose }: StoredFile): FileOut {
  return {
    ...{ id, object: 'file', bytes, created_at: seconds(createdAt), expires_at: seconds(expiresAt), filename, purpose },
    ...{ status: 'processed', status_details: null },
  };
}

export function batchOut(batch: BatchRecord): BatchOut {
  const { times, promptTokens, completionTokens } = batch;
  const at = (state: BatchState) => (times[state] === undefined ? null : seconds(times[state]));
  // What is not yet whole is not to be read.
  const isOver = at('completed') !== null || at('cancelled') !== null || at('expired') !== null;
  return {
    id: batch.id,
    object: 'batch',
    endpoint: batch.endpoint as BatchEndpoint,
    errors: batch.errors.length === 0 ? null : { object: 'list', data: batch.errors },
    input_file_id: batch.inputFileId,
    completion_window: COMPLETION_WINDOW,
    status: batch.state,
    output_file_id: (isOver ? batch.outputFileId : undefined) ?? null,
    error_file_id: (isOver ? batch.errorFileId : undefined) ?? null,
    created_at: seconds(batch.createdAt),
    in_progress_at: at('in_progress'),
    expires_at: seconds(batch.expiresAt),
    finalizing_at: at('finalizing'),
    completed_at: at('completed'),
    failed_at: at('failed'),
    expired_at: at('expired'),
    cancelling_at: at('cancelling'),
    cancelled_at: at('cancelled'),
    request_counts: { total: batch.total, completed: batch.completed, failed: batch.failed },
    usage: {
      input_tokens: promptTokens,
      input_tokens_details: { cached_tokens: batch.cachedTokens },
      output_tokens: completionTokens,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: promptTokens + completionTokens,
    },
    metadata: batch.metadata,
  };
}

function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}
