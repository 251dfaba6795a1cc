/** ReplyHeaders: the headers of the gateway's replies, as OpenAPI's header objects and references to them. */

const count = { type: 'integer', minimum: 0 };
const name = { type: 'string', minLength: 1, maxLength: 256 };

const HEADERS = {
  'x-request-id': {
    required: true,
    description: "The request's name in the logs: the client's own, or one that was made for it.",
    schema: { type: 'string', pattern: '^[\\w.:-]{1,128}$' },
  },
  traceresponse: {
    required: true,
    description: 'The span of this request here, as W3C Trace Context writes it; within the trace of its `traceparent`, or one of its own.',
    schema: { type: 'string', pattern: '^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$' },
  },
  'request-id': { description: "The same, as Anthropic's clients look for it.", schema: { type: 'string', pattern: '^[\\w.:-]{1,128}$' } },
  'x-ratelimit-limit-requests': { description: 'Requests a minute that this key may make; 1000000000 without a limit.', schema: count },
  'x-ratelimit-limit-tokens': { description: 'Tokens a minute; 1000000000 without a limit.', schema: count },
  'x-ratelimit-remaining-requests': { description: 'Requests that would be let in now.', schema: count },
  'x-ratelimit-remaining-tokens': { description: 'Tokens that would be let in now.', schema: count },
  'x-ratelimit-reset-requests': {
    description: 'Until all of them are there again, as `1m0.81s`.',
    schema: { $ref: '#/components/schemas/Duration' },
  },
  'x-ratelimit-reset-tokens': {
    description: 'Until all of them are there again, as `120ms`.',
    schema: { $ref: '#/components/schemas/Duration' },
  },
  'retry-after': { description: 'Seconds after which a try may succeed.', schema: { type: 'integer', minimum: 1 } },
  'www-authenticate': { required: true, description: 'How to say who one is.', schema: { type: 'string', const: 'Bearer' } },
  allow: { required: true, description: 'The methods that this URL takes.', schema: name },
  'x-sluice-stream-id': { description: 'Names the answer under /v1/streams.', schema: name },
  'x-sluice-stream-token': { description: 'Reads this one stream in place of a key, for EventSource.', schema: name },
  'x-sluice-cache': {
    description: '`hit`: an answer that was kept; `miss`: one that was generated now, for a request that always has the same.',
    schema: { type: 'string', enum: ['hit', 'miss'] },
  },
  'x-sluice-idempotent-replay': {
    description: 'The Idempotency-Key was given before: this is that answer.',
    schema: { type: 'string', const: 'true' },
  },
  'x-sluice-coalesced': { description: "It shares another request's generation.", schema: { type: 'string', const: 'true' } },
} as const;

export type HeaderName = keyof typeof HEADERS;

const LIMIT_HEADERS: readonly HeaderName[] = [
  'x-ratelimit-limit-requests',
  'x-ratelimit-limit-tokens',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-remaining-tokens',
  'x-ratelimit-reset-requests',
  'x-ratelimit-reset-tokens',
];

export const ALWAYS_HEADERS: readonly HeaderName[] = ['x-request-id', 'traceresponse'];

export const ANSWER_HEADERS: readonly HeaderName[] = [
  'x-sluice-stream-id',
  'x-sluice-stream-token',
  'x-sluice-cache',
  'x-sluice-idempotent-replay',
  'x-sluice-coalesced',
];

export const DURATION = { type: 'string', pattern: '^(\\d+ms|(\\d+m)?\\d+(\\.\\d+)?s)$' };

/** For `components.headers`. Those of limits twice: the reply of a call that was counted has them for certain. */
export function headerComponents(): Record<string, object> {
  const certain = LIMIT_HEADERS.map(header => [certainName(header), { ...HEADERS[header], required: true }] as const);
  return { ...HEADERS, ...Object.fromEntries(certain) };
}

export function headerRefs(names: readonly HeaderName[]): Record<string, object> {
  return Object.fromEntries(names.map(header => [header, ref(header)]));
}

/** `certain`: the key was looked at, so they are there. */
export function limitHeaderRefs(presence: 'certain' | 'possible'): Record<string, object> {
  return Object.fromEntries(LIMIT_HEADERS.map(header => [header, ref(presence === 'certain' ? certainName(header) : header)]));
}

function certainName(header: HeaderName): string {
  return `${header}.certain`;
}

function ref(component: string): object {
  return { $ref: `#/components/headers/${component}` };
}
