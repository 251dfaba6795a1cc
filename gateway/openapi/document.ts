/** Document: the API's description, OpenAPI 3.1; put together once, when it is first asked for, and the same text from then on. */
import { type ErrorCode, statusOf } from '../../shared/errors.ts';
import { messageStatusOf } from '../messages/message-error.ts';
import { type Access, JSON_TYPE, type Operation, type Reply, type ReplyContent, TAGS } from './operation.ts';
import { OPERATIONS } from './operations.ts';
import { ALWAYS_HEADERS, DURATION, headerComponents, headerRefs, limitHeaderRefs } from './reply-headers.ts';
import { schemaComponents, schemaRef } from './schemas.ts';

/** Of package.json; a test holds them together. */
export const API_VERSION = '0.1.0';

const BEARER = { key: [] };
const API_KEY = { apiKey: [] };

/** Codes that may come whatever is called. */
const ALWAYS: readonly ErrorCode[] = ['method_not_allowed', 'internal_error'];

const ACCESS: Readonly<Record<Access, { security: readonly object[]; refusals: readonly ErrorCode[] }>> = {
  all: { security: [], refusals: [] },
  key: { security: [BEARER, API_KEY], refusals: ['invalid_api_key', 'insufficient_scope', 'dependency_unavailable'] },
  stream: {
    security: [BEARER, API_KEY, { streamToken: [] }],
    refusals: ['invalid_api_key', 'insufficient_scope', 'dependency_unavailable'],
  },
  metrics: { security: [BEARER, {}], refusals: ['invalid_api_key', 'insufficient_scope'] },
  admin: { security: [BEARER], refusals: ['invalid_api_key', 'insufficient_scope', 'dependency_unavailable'] },
  operator: { security: [BEARER], refusals: ['invalid_api_key', 'insufficient_scope', 'dependency_unavailable'] },
};

const RETRIED: ReadonlySet<number> = new Set([429, 503, 529]);

let text: string | undefined;

export function openapiText(): string {
  text ??= JSON.stringify(openapiDocument());
  return text;
}

export function openapiDocument() {
  const paths: Record<string, Record<string, object>> = {};
  for (const operation of OPERATIONS) {
    paths[operation.path] ??= {};
    paths[operation.path]![operation.method] = operationObject(operation);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sluice',
      version: API_VERSION,
      description:
        "An OpenAI-compatible inference gateway for one's own machines. Every error is OpenAI's error object, under /v1/messages Anthropic's.",
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: { ...schemaComponents(), Duration: DURATION },
      headers: headerComponents(),
      securitySchemes: {
        key: { type: 'http', scheme: 'bearer', description: "A tenant's key under /v1, an administrator's under /admin." },
        apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: "The same key, as Anthropic's clients send it." },
        streamToken: {
          type: 'apiKey',
          in: 'query',
          name: 'token',
          description: 'The header `x-sluice-stream-token` of the reply that is read on.',
        },
      },
    },
  };
}

function operationObject(operation: Operation): object {
  const { security, refusals } = ACCESS[operation.access];
  return {
    operationId: operation.id,
    tags: [operation.tag],
    summary: operation.summary,
    ...(operation.description !== undefined && { description: operation.description }),
    security,
    ...(operation.parameters !== undefined && { parameters: operation.parameters }),
    ...(operation.request !== undefined && {
      requestBody: { required: true, content: { [operation.requestType ?? JSON_TYPE]: { schema: schemaRef(operation.request) } } },
    }),
    responses: {
      ...Object.fromEntries(operation.replies.map(reply => [reply.status, replyObject(reply, operation)])),
      ...refusalObjects([...ALWAYS, ...refusals, ...operation.refusals], operation),
    },
  };
}

function replyObject({ status, description, content, headers = [], links }: Reply, operation: Operation): object {
  return {
    description,
    headers: { ...headerRefs([...ALWAYS_HEADERS, ...headers]), ...limitHeaders(operation, status) },
    ...(content !== undefined && {
      content: Object.fromEntries(Object.entries(content).map(([type, schema]) => [type, { schema: schemaOf(schema) }])),
    }),
    ...(links !== undefined && {
      links: Object.fromEntries(Object.entries(links).map(([operationId, parameters]) => [operationId, { operationId, parameters }])),
    }),
  };
}

function schemaOf(content: ReplyContent): object {
  return typeof content === 'string' ? schemaRef(content) : content;
}

/** One for each status, with the codes that it may bear. */
function refusalObjects(codes: readonly ErrorCode[], operation: Operation): Record<string, object> {
  const byStatus = new Map<number, Set<ErrorCode>>();
  for (const code of codes) {
    const status = operation.errors === 'message' ? messageStatusOf(code) : statusOf(code);
    byStatus.set(status, (byStatus.get(status) ?? new Set()).add(code));
  }
  return Object.fromEntries(
    [...byStatus].map(([status, some]) => [
      status,
      {
        description: [...some].map(code => `\`${code}\``).join(', '),
        headers: {
          ...headerRefs(ALWAYS_HEADERS),
          ...limitHeaders(operation, status),
          ...(status === 401 && headerRefs(['www-authenticate'])),
          ...(status === 405 && headerRefs(['allow'])),
          ...(RETRIED.has(status) && headerRefs(['retry-after'])),
          ...(operation.errors === 'message' && headerRefs(['request-id'])),
        },
        content: {
          'application/json': {
            schema: errorSchema([...some], operation),
          },
        },
      },
    ]),
  );
}

function errorSchema(codes: readonly ErrorCode[], { errors }: Operation): object {
  const code = { enum: codes };
  return errors === 'message'
    ? { allOf: [schemaRef('MessageError'), { properties: { error: { properties: { details: { properties: { error_code: code } } } } } }] }
    : { allOf: [schemaRef('Error'), { properties: { error: { properties: { code } } } }] };
}

/** A key that is not good has no limits; a stream that is read by its token has none to tell of. */
function limitHeaders({ access }: Operation, status: number): Record<string, object> {
  if (access !== 'key' && access !== 'stream') return {};
  if (status === 401 || status === 403) return {};
  return limitHeaderRefs(access === 'key' && status < 500 ? 'certain' : 'possible');
}
