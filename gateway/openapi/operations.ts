/** Operations: every public call of the gateway: what goes in, what comes out, and by which codes it may be refused. */
import { BATCH_OPERATIONS } from './batch-operations.ts';
import { asksOfQueue, events, GENERATION_REFUSALS, generation, QUICK_REFUSALS } from './generation-operation.ts';
import { MESSAGE_OPERATIONS } from './message-operations.ts';
import { BODY_REFUSALS, flag, header, JSON_TYPE, json, type Operation, path, query, SSE_TYPE } from './operation.ts';
import { ANSWER_HEADERS } from './reply-headers.ts';

const toTenant = { name: '$response.body#/name' };
const toKey = { id: '$response.body#/id', tenant: '$response.body#/tenant' };
const streamId = path('id', 'Id of the completion, as `x-sluice-stream-id` tells it.');
const toResponse = { id: '$response.body#/id' };
const responseId = path('id', 'The id of the response.');
const tenantQuery = query('tenant', {
  description: "The tenant's name; a tenant's own administrator need not give it.",
  schema: { $ref: '#/components/schemas/TenantName' },
});

export const OPERATIONS: readonly Operation[] = [
  generation({
    path: '/v1/chat/completions',
    id: 'createChatCompletion',
    summary: 'Answers a conversation.',
    request: 'ChatCompletionRequest',
    whole: 'ChatCompletion',
    chunk: 'ChatCompletionChunk',
  }),
  generation({
    path: '/v1/completions',
    id: 'createCompletion',
    summary: 'Continues texts.',
    request: 'CompletionRequest',
    whole: 'Completion',
    chunk: 'CompletionChunk',
  }),
  {
    ...{ method: 'get', path: '/v1/models', id: 'listModels', tag: 'Inference', access: 'key' },
    summary: 'Models that are served now.',
    replies: [json(200, 'ModelList', 'All of them, by name.')],
    refusals: [],
  },
  {
    ...{ method: 'get', path: '/v1/models/{id}', id: 'retrieveModel', tag: 'Inference', access: 'key' },
    summary: 'One served model; `default` is the one that it stands for.',
    parameters: [path('id', 'Its name.')],
    replies: [json(200, 'Model', 'The model.')],
    refusals: ['model_not_found', 'not_found'],
  },
  {
    ...{ method: 'post', path: '/v1/embeddings', id: 'createEmbeddings', tag: 'Inference', access: 'key' },
    summary: 'Vectors of texts.',
    description: 'Fields that are unknown here are let through and have no effect.',
    parameters: asksOfQueue.filter(parameter => !('name' in parameter) || parameter.name !== 'x-sluice-cache'),
    request: 'EmbeddingRequest',
    replies: [
      {
        ...json(200, 'Embeddings', 'A vector for each input, in their order.'),
        headers: ['x-sluice-stream-id', 'x-sluice-idempotent-replay', 'x-sluice-coalesced'],
      },
    ],
    refusals: GENERATION_REFUSALS.filter(code => code !== 'unsupported_parameter'),
  },
  {
    ...{ method: 'post', path: '/tokenize', id: 'tokenize', tag: 'Inference', access: 'key' },
    summary: 'The tokens of a text or of a rendered conversation.',
    description: "vLLM's call. It counts as a request, and as no tokens.",
    request: 'TokenizeRequest',
    replies: [{ ...json(200, 'Tokens', 'The tokens.'), headers: ['x-sluice-stream-id'] }],
    refusals: QUICK_REFUSALS,
  },
  {
    ...{ method: 'post', path: '/detokenize', id: 'detokenize', tag: 'Inference', access: 'key' },
    summary: 'The text of tokens.',
    description: "vLLM's call. It counts as a request, and as no tokens.",
    request: 'DetokenizeRequest',
    replies: [{ ...json(200, 'Detokenized', 'The text.'), headers: ['x-sluice-stream-id'] }],
    refusals: QUICK_REFUSALS,
  },
  {
    ...{ method: 'post', path: '/v1/responses', id: 'createResponse', tag: 'Inference', access: 'key' },
    summary: 'Answers an input, under an id by which the answer can be asked for again.',
    description: 'With `background` it is answered without its client. Fields that are unknown here are let through and have no effect.',
    parameters: asksOfQueue.filter(parameter => !('name' in parameter) || parameter.name !== 'x-sluice-cache'),
    request: 'ResponseRequest',
    replies: [
      {
        status: 200,
        description: 'The response: whole, in the background as it is on its way, or with `stream` as server-sent events.',
        content: { [JSON_TYPE]: 'Response', [SSE_TYPE]: events('ResponseEvent') },
        headers: ANSWER_HEADERS.filter(name => name !== 'x-sluice-cache'),
        links: { retrieveResponse: toResponse, cancelResponse: toResponse, listInputItems: toResponse, deleteResponse: toResponse },
      },
    ],
    refusals: [...GENERATION_REFUSALS, 'previous_response_not_found'],
  },
  {
    ...{ method: 'get', path: '/v1/responses/{id}', id: 'retrieveResponse', tag: 'Inference', access: 'key' },
    summary: 'A response as it stands, or its events from one of them on.',
    parameters: [
      responseId,
      query('stream', flag('Its events, and on as they come.')),
      query('starting_after', {
        description: 'Number of the last event that was seen.',
        schema: { type: 'string', pattern: '^\\d{1,9}$' },
      }),
    ],
    replies: [
      {
        status: 200,
        description: 'The response.',
        content: { [JSON_TYPE]: 'Response', [SSE_TYPE]: events('ResponseEvent') },
        headers: ['x-sluice-stream-id', 'x-sluice-stream-token'],
      },
    ],
    refusals: ['invalid_value', 'not_found', 'request_cancelled', 'rate_limit_exceeded', 'generation_failed', 'no_batcher'],
  },
  {
    ...{ method: 'post', path: '/v1/responses/{id}/cancel', id: 'cancelResponse', tag: 'Inference', access: 'key' },
    summary: 'Stops a response in the background.',
    parameters: [responseId],
    replies: [json(200, 'Response', 'It is over.')],
    refusals: ['invalid_value', 'not_found', 'rate_limit_exceeded'],
  },
  {
    ...{ method: 'delete', path: '/v1/responses/{id}', id: 'deleteResponse', tag: 'Inference', access: 'key' },
    summary: 'Takes a response away before its time.',
    description: 'What runs of it in the background is stopped; whoever reads its stream gets the rest.',
    parameters: [responseId],
    replies: [json(200, 'DeletedResponse', 'Nobody can ask for it any more.')],
    refusals: ['not_found'],
  },
  {
    ...{ method: 'get', path: '/v1/responses/{id}/input_items', id: 'listInputItems', tag: 'Inference', access: 'key' },
    summary: 'What a response was asked, item by item.',
    parameters: [
      responseId,
      query('limit', { schema: { type: 'integer', minimum: 1, maximum: 100, default: 20 } }),
      query('order', { description: '`desc`: the last one first.', schema: { type: 'string', enum: ['asc', 'desc'], default: 'desc' } }),
      query('after', { description: 'The last id of the page before.', schema: { type: 'string' } }),
    ],
    replies: [json(200, 'InputItemList', 'One page.')],
    refusals: ['invalid_value', 'not_found'],
  },
  ...MESSAGE_OPERATIONS,
  ...BATCH_OPERATIONS,
  {
    ...{ method: 'get', path: '/v1/streams/{id}', id: 'resumeStream', tag: 'Streams', access: 'stream' },
    summary: 'An answer once more, from where its client stands, and on as it is made.',
    description: 'For the tenant whose request it was; to everyone else there is no such stream.',
    parameters: [
      streamId,
      header('Last-Event-ID', {
        description: 'The last id that was seen; it comes before `after`.',
        schema: { type: 'string', pattern: '^\\d{1,9}$' },
      }),
      query('after', { description: 'The same in the URL.', schema: { type: 'string', pattern: '^\\d{1,9}$' } }),
    ],
    replies: [
      {
        status: 200,
        description: 'The answer in the form that its request asked for.',
        content: { [SSE_TYPE]: events('ChatCompletionChunk', 'CompletionChunk', 'ResponseEvent', 'MessageEvent'), [JSON_TYPE]: 'AnyReply' },
        headers: ['x-sluice-stream-id', 'x-sluice-stream-token'],
      },
      {
        status: 204,
        description: 'All of it has been seen: EventSource comes back no more.',
        headers: ['x-sluice-stream-id', 'x-sluice-stream-token'],
      },
    ],
    refusals: [
      'invalid_value',
      'not_found',
      'request_cancelled',
      'context_length_exceeded',
      'rate_limit_exceeded',
      'generation_failed',
      'no_batcher',
    ],
  },
  {
    ...{ method: 'delete', path: '/v1/streams/{id}', id: 'cancelStream', tag: 'Streams', access: 'key' },
    summary: 'Ends an answer before its time, whether it waits, runs or streams.',
    parameters: [streamId],
    replies: [json(200, 'CancelledStream', 'It is over.')],
    refusals: ['not_found'],
  },
  {
    ...{ method: 'post', path: '/admin/tenants', id: 'putTenant', tag: 'Administration', access: 'operator' },
    summary: 'Makes a tenant, or changes the one that is there.',
    request: 'TenantRequest',
    replies: [
      json(200, 'Tenant', 'It was there, and is changed.'),
      { ...json(201, 'Tenant', 'It is new.'), links: { retrieveTenant: toTenant, deleteTenant: toTenant } },
    ],
    refusals: BODY_REFUSALS,
  },
  {
    ...{ method: 'get', path: '/admin/tenants', id: 'listTenants', tag: 'Administration', access: 'admin' },
    summary: 'Tenants by name, page by page.',
    parameters: [
      query('limit', { schema: { type: 'integer', minimum: 1, maximum: 100, default: 20 } }),
      query('after', { description: 'The last name of the page before.', schema: { type: 'string' } }),
    ],
    replies: [json(200, 'TenantList', 'One page.')],
    refusals: ['invalid_value'],
  },
  {
    ...{ method: 'get', path: '/admin/tenants/{name}', id: 'retrieveTenant', tag: 'Administration', access: 'admin' },
    summary: 'One tenant.',
    parameters: [tenantInPath()],
    replies: [json(200, 'Tenant', 'The tenant.')],
    refusals: ['invalid_value', 'not_found'],
  },
  {
    ...{ method: 'delete', path: '/admin/tenants/{name}', id: 'deleteTenant', tag: 'Administration', access: 'operator' },
    summary: 'Takes a tenant away, with its keys and its usage.',
    parameters: [tenantInPath()],
    replies: [json(200, 'DeletedTenant', 'It is gone.')],
    refusals: ['invalid_value', 'not_found'],
  },
  {
    ...{ method: 'post', path: '/admin/keys', id: 'createKey', tag: 'Administration', access: 'admin' },
    summary: 'Makes a key, and its tenant where there is none.',
    request: 'KeyRequest',
    replies: [
      {
        ...json(201, 'NewKey', 'The key, this once.'),
        links: { revokeKey: toKey, changeKey: { id: toKey.id }, listKeys: { tenant: toKey.tenant }, listUsage: { tenant: toKey.tenant } },
      },
    ],
    refusals: [...BODY_REFUSALS, 'not_configured'],
  },
  {
    ...{ method: 'get', path: '/admin/keys', id: 'listKeys', tag: 'Administration', access: 'admin' },
    summary: "A tenant's keys.",
    parameters: [tenantQuery],
    replies: [json(200, 'KeyList', 'All of them.')],
    refusals: ['invalid_value', 'missing_required_parameter', 'not_found'],
  },
  {
    ...{ method: 'post', path: '/admin/keys/{id}', id: 'changeKey', tag: 'Administration', access: 'admin' },
    summary: 'Changes what a key may do.',
    parameters: [path('id', 'The id of the key.')],
    request: 'KeyChangeRequest',
    replies: [json(200, 'Key', 'As it is now.')],
    refusals: [...BODY_REFUSALS, 'not_found'],
  },
  {
    ...{ method: 'delete', path: '/admin/keys/{id}', id: 'revokeKey', tag: 'Administration', access: 'admin' },
    summary: 'Revokes a key, for good.',
    parameters: [path('id', 'The id of the key.'), tenantQuery],
    replies: [json(200, 'Key', 'Revoked.')],
    refusals: ['invalid_value', 'missing_required_parameter', 'not_found'],
  },
  {
    ...{ method: 'get', path: '/admin/usage', id: 'listUsage', tag: 'Administration', access: 'admin' },
    summary: 'What a tenant used: one row a day, key and model.',
    parameters: [
      tenantQuery,
      query('from', { description: 'First UTC day; 29 days before the last when absent.', schema: { type: 'string', format: 'date' } }),
      query('to', { description: 'Last UTC day; today when absent.', schema: { type: 'string', format: 'date' } }),
      query('limit', { schema: { type: 'integer', minimum: 1, maximum: 10_000, default: 1_000 } }),
    ],
    replies: [json(200, 'UsageList', 'The rows.')],
    refusals: ['invalid_value', 'missing_required_parameter', 'not_found'],
  },
  {
    ...{ method: 'get', path: '/admin/batchers', id: 'listBatchers', tag: 'Administration', access: 'operator' },
    summary: 'The batchers, and what they do.',
    replies: [json(200, 'BatcherList', 'All of them.')],
    refusals: [],
  },
  {
    ...{ method: 'get', path: '/admin/queues', id: 'listQueues', tag: 'Administration', access: 'operator' },
    summary: 'The queues of the models that have batchers, and how many jobs wait in each.',
    replies: [json(200, 'QueueList', 'All of them.')],
    refusals: [],
  },
  {
    ...{ method: 'post', path: '/admin/batchers/{id}/drain', id: 'drainBatcher', tag: 'Administration', access: 'operator' },
    summary: 'Asks a batcher to take nothing new, finish what it runs, and end.',
    parameters: [path('id', 'The id of the batcher.')],
    replies: [json(202, 'Batcher', 'It sees it with its next heartbeat.')],
    refusals: ['not_found'],
  },
  {
    ...{ method: 'get', path: '/health', id: 'health', tag: 'Service', access: 'all' },
    summary: 'This process answers.',
    replies: [json(200, 'Health', 'It does.')],
    refusals: [],
  },
  {
    ...{ method: 'get', path: '/ready', id: 'ready', tag: 'Service', access: 'all' },
    summary: 'A request could be served.',
    replies: [json(200, 'Readiness', 'Redis answers, and these models are served.')],
    refusals: ['no_batcher', 'dependency_unavailable'],
  },
  {
    ...{ method: 'get', path: '/metrics', id: 'readMetrics', tag: 'Service', access: 'metrics' },
    summary: 'What the gateway has counted and measured.',
    replies: [
      {
        status: 200,
        description: "Prometheus' text format.",
        content: { 'text/plain': { type: 'string' } },
      },
    ],
    refusals: ['not_found'],
  },
  {
    ...{ method: 'get', path: '/scale', id: 'readScale', tag: 'Service', access: 'metrics' },
    summary: 'How many batchers a model needs.',
    description:
      "By the requests that come, the queue, and what one batcher sustains (`SLUICE_KNEE`). For an autoscaler, as KEDA's metrics-api.",
    parameters: [query('model', { required: true, description: 'Its name.', schema: { type: 'string', pattern: '^[\\w./:-]{1,128}$' } })],
    replies: [json(200, 'Scale', 'For any name: of a model that nobody serves or asks for it is 0.')],
    refusals: ['not_found', 'missing_required_parameter', 'invalid_value', 'dependency_unavailable'],
  },
  {
    ...{ method: 'get', path: '/openapi.json', id: 'describeApi', tag: 'Service', access: 'all' },
    summary: 'This description.',
    replies: [json(200, 'OpenapiDocument', 'OpenAPI 3.1.')],
    refusals: [],
  },
  {
    ...{ method: 'get', path: '/docs', id: 'readApi', tag: 'Service', access: 'all' },
    summary: 'This description, to be read and tried.',
    replies: [{ status: 200, description: 'A page.', content: { 'text/html': { type: 'string' } } }],
    refusals: [],
  },
  {
    ...{ method: 'get', path: '/docs/reader.js', id: 'loadReader', tag: 'Service', access: 'all' },
    summary: 'The script of that page.',
    replies: [{ status: 200, description: 'A script.', content: { 'text/javascript': { type: 'string' } } }],
    refusals: [],
  },
];

function tenantInPath(): object {
  return {
    in: 'path',
    name: 'name',
    required: true,
    description: "The tenant's name.",
    schema: { $ref: '#/components/schemas/TenantName' },
  };
}
