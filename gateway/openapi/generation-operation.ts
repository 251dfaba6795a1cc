/** GenerationOperation: what the description says of a call that has an answer generated: what may be asked of the queue, and how it may be refused. */
import type { ErrorCode } from '../../shared/errors.ts';
import { flag, header, JSON_TYPE, type Operation, SSE_TYPE } from './operation.ts';
import { ANSWER_HEADERS } from './reply-headers.ts';
import type { ReplyName, RequestName } from './schemas.ts';

const idempotencyKey = header('Idempotency-Key', {
  description: 'A request and those that repeat it under the same key have one answer, of one job, with one charge.',
  schema: { type: 'string', pattern: '^[\\x21-\\x7e]{1,255}$' },
});
export const asksOfQueue = [
  idempotencyKey,
  header('x-sluice-resumable', flag('The answer goes on for a while when its client has left.')),
  header('x-sluice-coalesce', flag('Identical requests of the tenant that run at the same time share one generation.')),
  header('x-sluice-cache', {
    description: '`off`: no earlier answer is given, and this one is not kept.',
    schema: { type: 'string', enum: ['on', 'off'] },
  }),
  header('x-sluice-max-wait-ms', {
    description: 'Refused at once when the estimated wait for a row is longer.',
    schema: { type: 'integer', minimum: 0, maximum: 86_400_000 },
  }),
];
export const toStream = { id: '$response.header.x-sluice-stream-id' };
export const GENERATION_REFUSALS: readonly ErrorCode[] = [
  ...(['invalid_json', 'invalid_value', 'missing_required_parameter', 'unsupported_parameter', 'context_length_exceeded'] as const),
  ...(['request_exceeds_limit', 'request_cancelled', 'model_not_found', 'idempotency_conflict', 'body_too_large'] as const),
  ...(['unsupported_content_encoding', 'rate_limit_exceeded', 'queue_full', 'generation_failed', 'no_batcher'] as const),
];
export const QUICK_REFUSALS = GENERATION_REFUSALS.filter(code => code !== 'context_length_exceeded');

export function generation(call: {
  path: string;
  id: string;
  summary: string;
  request: RequestName;
  whole: ReplyName;
  chunk: ReplyName;
}): Operation {
  return {
    ...{ method: 'post', path: call.path, id: call.id, summary: call.summary, tag: 'Inference', access: 'key' },
    description: 'Fields that are unknown here are let through and have no effect.',
    parameters: asksOfQueue,
    request: call.request,
    replies: [
      {
        status: 200,
        description: 'The answer: whole, or with `stream` as server-sent events.',
        content: { [JSON_TYPE]: call.whole, [SSE_TYPE]: events(call.chunk) },
        headers: ANSWER_HEADERS,
        links: { resumeStream: toStream, cancelStream: toStream },
      },
    ],
    refusals: GENERATION_REFUSALS,
  };
}

/** OpenAPI 3.1 has no word for what an event holds; without a type, since some take the whole body for a text and some each event for an object. */
export function events(...chunks: ReplyName[]): { description: string } {
  const names = chunks.map(chunk => `#/components/schemas/${chunk}`).join(' or ');
  // Anthropic's streams have their own last event, and their own for an error.
  const ends = chunks.every(chunk => chunk === 'MessageEvent') ? '' : ', or at the end `[DONE]`, or #/components/schemas/Error';
  return {
    description: `Server-sent events; \`data\` holds ${names}${ends}. \`id\` is what Last-Event-ID takes. Comments tell the place in the queue.`,
  };
}
