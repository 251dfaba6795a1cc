/** Schemas: the named schemas of the API's description: requests from the very schemas that validate them, replies from theirs. */
import { z } from 'zod';
import { KeyChangeIn, KeyIn, TenantIn, TenantName } from '../../shared/admin-wire.ts';
import { BatchBody } from '../batches/batch-wire.ts';
import { ChatBody } from '../chat-request.ts';
import { CompletionBody } from '../completion-request.ts';
import { EmbeddingBody } from '../embedding-request.ts';
import { MessageBody, TokenCountBody } from '../messages/message-request.ts';
import { DetokenizeBody, TokenizeBody } from '../quick-request.ts';
import { ResponseBody } from '../responses/response-request.ts';
import * as batches from './batch-schemas.ts';
import * as messages from './message-schemas.ts';
import * as replies from './reply-schemas.ts';
import { DeletedResponse, InputItemList, ResponseEvent, ResponseReply } from './response-schemas.ts';

const REQUESTS = {
  ChatCompletionRequest: ChatBody,
  CompletionRequest: CompletionBody,
  ResponseRequest: ResponseBody,
  MessageRequest: MessageBody,
  TokenCountRequest: TokenCountBody,
  EmbeddingRequest: EmbeddingBody,
  TokenizeRequest: TokenizeBody,
  DetokenizeRequest: DetokenizeBody,
  FileRequest: batches.FileRequest,
  BatchRequest: BatchBody,
  TenantRequest: TenantIn,
  KeyRequest: KeyIn,
  KeyChangeRequest: KeyChangeIn,
  TenantName,
} satisfies Record<string, z.ZodType>;

const REPLIES = {
  Error: replies.ErrorReply,
  ChatCompletion: replies.ChatCompletion,
  ChatCompletionChunk: replies.ChatCompletionChunk,
  Completion: replies.Completion,
  CompletionChunk: replies.CompletionChunk,
  AnyReply: z.union([
    replies.ChatCompletion,
    replies.Completion,
    ResponseReply,
    messages.Message,
    replies.Embeddings,
    replies.Tokens,
    replies.Detokenized,
    messages.TokenCount,
  ]),
  Response: ResponseReply,
  ResponseEvent,
  DeletedResponse,
  InputItemList,
  Message: messages.Message,
  MessageEvent: messages.MessageEvent,
  MessageError: messages.MessageError,
  TokenCount: messages.TokenCount,
  Embeddings: replies.Embeddings,
  Tokens: replies.Tokens,
  Detokenized: replies.Detokenized,
  Model: replies.Model,
  ModelList: replies.ModelList,
  CancelledStream: replies.CancelledStream,
  File: batches.File,
  FileList: batches.FileList,
  DeletedFile: batches.DeletedFile,
  Batch: batches.Batch,
  BatchList: batches.BatchList,
  Tenant: replies.Tenant,
  TenantList: replies.TenantList,
  DeletedTenant: replies.DeletedTenant,
  Key: replies.Key,
  NewKey: replies.NewKey,
  KeyList: replies.KeyList,
  UsageList: replies.UsageList,
  Batcher: replies.Batcher,
  BatcherList: replies.BatcherList,
  QueueList: replies.QueueList,
  Health: replies.Health,
  Readiness: replies.Readiness,
  Scale: replies.Scale,
  OpenapiDocument: z.looseObject({ openapi: z.literal('3.1.0') }),
} satisfies Record<string, z.ZodType>;

export type RequestName = keyof typeof REQUESTS;
export type ReplyName = keyof typeof REPLIES;

type JsonSchema = Record<string, unknown>;

/** For `components.schemas`. */
export function schemaComponents(): Record<string, JsonSchema> {
  return { ...named(REQUESTS, 'input'), ...named(REPLIES, 'output') };
}

export function schemaRef(name: RequestName | ReplyName): { $ref: string } {
  return { $ref: `#/components/schemas/${name}` };
}

function named(schemas: Record<string, z.ZodType>, io: 'input' | 'output'): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(schemas)) registry.add(schema, { id });
  const written = z.toJSONSchema(registry, {
    io,
    unrepresentable: 'any',
    uri: id => `#/components/schemas/${id}`,
    override({ jsonSchema }) {
      // Fields may be added to replies, so who reads one is not to be strict.
      if (io === 'output') delete jsonSchema.additionalProperties;
    },
  });
  return Object.fromEntries(
    Object.entries(written.schemas).map(([name, { $schema: _, $id: __, ...schema }]) => [name, schema as JsonSchema]),
  );
}
