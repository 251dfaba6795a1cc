/** Operation: what the description says of one call, and the parts that many calls are made of. */
import type { ErrorCode } from '../../shared/errors.ts';
import type { HeaderName } from './reply-headers.ts';
import type { ReplyName, RequestName } from './schemas.ts';

export type Method = 'get' | 'post' | 'delete';

export interface Operation {
  method: Method;
  /** As OpenAPI writes it, `/v1/models/{id}`. */
  path: string;
  id: string;
  tag: Tag;
  summary: string;
  description?: string;
  access: Access;
  parameters?: readonly object[];
  request?: RequestName;
  /** `multipart/form-data` where the request is a form. */
  requestType?: string;
  replies: readonly Reply[];
  /** In whose shape errors are; OpenAI's when absent. */
  errors?: 'message';
  /** Besides those that its access brings with it. */
  refusals: readonly ErrorCode[];
}

export interface Reply {
  status: number;
  description: string;
  content?: Readonly<Record<string, ReplyContent>>;
  headers?: readonly HeaderName[];
  /** By the id of the call that can follow: its parameters, as runtime expressions. */
  links?: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

/** A named schema, or one that needs no name. */
export type ReplyContent = ReplyName | { type?: 'string'; description?: string };

/** Who may call: `key` a tenant's key, `stream` that or a stream's token, `admin` an administrator, `operator` the operator alone, `metrics` whom SLUICE_METRICS names, `all` everybody. */
export type Access = 'all' | 'key' | 'stream' | 'admin' | 'operator' | 'metrics';

export type Tag = keyof typeof TAGS;

export const TAGS = {
  Inference: "OpenAI's calls. Requests to other fields than these are let through, and the fields have no effect.",
  Batches: 'Many requests in a file, done when there is room for them; their files.',
  Streams: 'Answers that are read on, or ended, by the id that their replies bear.',
  Administration: 'Tenants, keys, usage and batchers.',
  Service: 'The gateway itself.',
} as const;

export const JSON_TYPE = 'application/json';
export const SSE_TYPE = 'text/event-stream';

export const BODY_REFUSALS: readonly ErrorCode[] = [
  ...(['invalid_json', 'invalid_value', 'missing_required_parameter', 'body_too_large', 'unsupported_content_encoding'] as const),
];

export function json(status: number, schema: ReplyName, description: string): Reply {
  return { status, description, content: { [JSON_TYPE]: schema } };
}

export function header(name: string, more: object): object {
  return { in: 'header', name, required: false, ...more };
}

export function query(name: string, more: object): object {
  return { in: 'query', name, required: false, ...more };
}

export function path(name: string, description: string): object {
  return { in: 'path', name, required: true, description, schema: { type: 'string', minLength: 1 } };
}

export function flag(description: string): object {
  return { description, schema: { type: 'string', enum: ['true', 'false'] } };
}
