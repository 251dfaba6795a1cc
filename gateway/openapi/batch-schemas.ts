/** BatchSchemas: files and batches as the description tells them; the compiler holds each to the type of the code that writes it. */
import { z } from 'zod';
import { BATCH_ENDPOINTS } from '../batches/batch-input.ts';
import { BATCH_STATES } from '../batches/batch-store.ts';
import type { BatchOut, DeletedFileOut, FileOut } from '../batches/batch-wire.ts';
import type { PageOut } from '../batches/list-range.ts';

const Count = z.int().min(0);
const Seconds = z.int().min(0).describe('Epoch seconds.');
const Since = z.int().min(0).nullable().describe('Epoch seconds; null where it was not.');

export const FileRequest = z.object({
  purpose: z.literal('batch'),
  file: z.string().meta({ format: 'binary' }).describe('JSONL, one request a line.'),
  'expires_after[anchor]': z.literal('created_at').optional(),
  'expires_after[seconds]': z.int().min(3_600).optional(),
});

export const File = z.object({
  id: z.string(),
  object: z.literal('file'),
  bytes: Count,
  created_at: Seconds,
  expires_at: Seconds,
  filename: z.string(),
  purpose: z.enum(['batch', 'batch_output']),
  status: z.literal('processed'),
  status_details: z.null(),
}) satisfies z.ZodType<FileOut>;

export const DeletedFile = z.object({
  id: z.string(),
  object: z.literal('file'),
  deleted: z.literal(true),
}) satisfies z.ZodType<DeletedFileOut>;

const Fault = z.object({
  code: z.string(),
  message: z.string(),
  param: z.string().nullable(),
  line: z.int().min(1).nullable().describe('Of the input.'),
});

export const Batch = z.object({
  id: z.string(),
  object: z.literal('batch'),
  endpoint: z.enum(BATCH_ENDPOINTS),
  errors: z
    .object({ object: z.literal('list'), data: z.array(Fault) })
    .nullable()
    .describe('What is wrong with the input, of which then nothing is done.'),
  input_file_id: z.string(),
  completion_window: z.string(),
  status: z.enum(BATCH_STATES),
  output_file_id: z.string().nullable().describe('Of the answers, when it is over.'),
  error_file_id: z.string().nullable().describe('Of the requests that have none, with the reason.'),
  created_at: Seconds,
  in_progress_at: Since,
  expires_at: Seconds,
  finalizing_at: Since,
  completed_at: Since,
  failed_at: Since,
  expired_at: Since,
  cancelling_at: Since,
  cancelled_at: Since,
  request_counts: z.object({ total: Count, completed: Count, failed: Count }),
  usage: z.object({
    input_tokens: Count,
    input_tokens_details: z.object({ cached_tokens: Count }),
    output_tokens: Count,
    output_tokens_details: z.object({ reasoning_tokens: Count }),
    total_tokens: Count,
  }),
  metadata: z.record(z.string(), z.string()).nullable(),
}) satisfies z.ZodType<BatchOut>;

export const FileList = pageOf(File) satisfies z.ZodType<PageOut<FileOut>>;
export const BatchList = pageOf(Batch) satisfies z.ZodType<PageOut<BatchOut>>;

export function pageOf<T extends z.ZodType>(item: T) {
  return z.object({
    object: z.literal('list'),
    data: z.array(item),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  });
}
