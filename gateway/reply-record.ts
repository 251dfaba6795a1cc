/**
 * ReplyRecord: what must be known of a job to open its reply once more, for a client that comes back or by a broker that did not begin it.
 * It holds nothing of the prompt.
 */
import { z } from 'zod';
import { type Job, MAX_CHOICES, MAX_INPUTS, promptsOf, SERVICE_CLASSES, type ServiceClass } from '../shared/job.ts';
import type { ReplyShape } from './broker-call.ts';

const RecordShape = z.looseObject({
  id: z.string(),
  tenant: z.string(),
  model: z.string(),
  shard: z.string(),
  submittedAt: z.number(),
  promptCount: z.int().min(1).max(MAX_INPUTS),
  choiceCount: z.int().min(1).max(MAX_CHOICES),
  wantsLogprobs: z.boolean(),
  promptTokensBound: z.number(),
  reply: z.discriminatedUnion('kind', [
    z.looseObject({ kind: z.literal('chat'), isStreamed: z.boolean(), includeUsage: z.boolean() }),
    z.looseObject({
      kind: z.literal('completion'),
      isStreamed: z.boolean(),
      includeUsage: z.boolean(),
      keptCount: z.int().min(1),
      wantsLogprobs: z.boolean(),
    }),
    z.looseObject({
      kind: z.literal('response'),
      isStreamed: z.boolean(),
      isBackground: z.boolean(),
      isStored: z.boolean(),
      echo: z.looseObject({}),
    }),
    z.looseObject({ kind: z.literal('message'), isStreamed: z.boolean() }),
    z.looseObject({ kind: z.literal('embeddings'), isStreamed: z.literal(false), encodingFormat: z.enum(['float', 'base64']) }),
    z.looseObject({ kind: z.literal('tokenize'), isStreamed: z.literal(false) }),
    z.looseObject({ kind: z.literal('detokenize'), isStreamed: z.literal(false) }),
    z.looseObject({ kind: z.literal('count_tokens'), isStreamed: z.literal(false) }),
  ]),
  /** No batcher can refuse the prompt. */
  isSureToFit: z.boolean(),
  isResumable: z.boolean(),
  /** With it the stream can be read without a key. */
  token: z.string(),
  /** Whose share of the tenant's limits the job takes: the id of the request that put it on the queue. */
  reservation: z.string(),
  /** Of it, for the prompt. */
  reservedPromptTokens: z.number(),
  /** Digest of the tenant's Idempotency-Key. */
  idempotency: z.string().optional(),
  batcherId: z.string().optional(),
  isQuick: z.boolean().optional(),
  serviceClass: z.enum(SERVICE_CLASSES),
  weight: z.number().positive(),
  expectedTokens: z.number(),
  cacheKey: z.string().optional(),
  isCoalesced: z.boolean().optional(),
  traceparent: z.string().optional(),
});

export interface ReplyRecord {
  id: string;
  tenant: string;
  model: string;
  shard: string;
  submittedAt: number;
  promptCount: number;
  choiceCount: number;
  wantsLogprobs: boolean;
  promptTokensBound: number;
  reply: ReplyShape;
  isSureToFit: boolean;
  isResumable: boolean;
  token: string;
  reservation: string;
  reservedPromptTokens: number;
  idempotency?: string | undefined;
  /** Whose own queue the job was put into; absent for the shared one. */
  batcherId?: string | undefined;
  /** It needs no row, and was put into the queue of such. */
  isQuick?: boolean | undefined;
  /** Under which the tenant's share of the model is counted, and what has been counted to it for this job. */
  serviceClass: ServiceClass;
  weight: number;
  expectedTokens: number;
  /** Under which the tenant's object keeps the answer; absent for one that is not kept. */
  cacheKey?: string | undefined;
  /** Identical requests join it while it runs: `idempotency` is of what was asked. */
  isCoalesced?: boolean | undefined;
  /** Of the request that put the job on the queue. */
  traceparent?: string | undefined;
}

const TOKEN_BYTES = 18;

export function replyRecord(
  job: Job,
  more: Omit<
    ReplyRecord,
    | 'id'
    | 'tenant'
    | 'model'
    | 'shard'
    | 'submittedAt'
    | 'choiceCount'
    | 'promptCount'
    | 'wantsLogprobs'
    | 'token'
    | 'serviceClass'
    | 'traceparent'
  >,
): ReplyRecord {
  const { id, tenant, model, shard, submittedAt, choiceCount, serviceClass, traceparent } = job;
  const wantsLogprobs = job.sampling.topLogprobs !== undefined;
  return {
    id,
    tenant,
    model,
    shard,
    submittedAt,
    choiceCount,
    serviceClass,
    traceparent,
    promptCount: promptsOf(job).length,
    wantsLogprobs,
    token: newToken(),
    ...more,
  };
}

/** Undefined for what is no record of a kind that this version knows. */
export function parseRecord(json: string): ReplyRecord | undefined {
  try {
    return RecordShape.safeParse(JSON.parse(json)).data as ReplyRecord | undefined;
  } catch {
    return undefined;
  }
}

/** What a client puts into a URL in place of a key: the tenant, by which the record is found, and the secret. */
export function streamToken(record: Pick<ReplyRecord, 'tenant' | 'token'>): string {
  return `${record.tenant}.${record.token}`;
}

/** Undefined for what is no token. */
export function splitToken(token: string): { tenant: string; secret: string } | undefined {
  const parts = /^([\w-]{1,64})\.([\w-]{8,64})$/.exec(token);
  return parts === null ? undefined : { tenant: parts[1]!, secret: parts[2]! };
}

function newToken(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(TOKEN_BYTES));
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_');
}
