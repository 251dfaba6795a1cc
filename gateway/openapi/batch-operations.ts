/** BatchOperations: the calls of files and batches. */
import { BODY_REFUSALS, json, type Operation, path, query } from './operation.ts';

const toFile = { id: '$response.body#/id' };
const fileId = path('id', 'The id of the file.');
const batchId = path('id', 'The id of the batch.');
const after = query('after', { description: 'The last id of the page before.', schema: { type: 'string', pattern: '^[\\w-]{1,128}$' } });
const limit = (maximum: number, usual: number) => query('limit', { schema: { type: 'integer', minimum: 1, maximum, default: usual } });

export const BATCH_OPERATIONS: readonly Operation[] = [
  {
    ...{ method: 'post', path: '/v1/files', id: 'createFile', tag: 'Batches', access: 'key' },
    summary: 'Takes a file, as it comes.',
    request: 'FileRequest',
    requestType: 'multipart/form-data',
    replies: [{ ...json(200, 'File', 'It is there.'), links: { retrieveFile: toFile, retrieveFileContent: toFile, deleteFile: toFile } }],
    refusals: [
      'invalid_value',
      'missing_required_parameter',
      'body_too_large',
      'unsupported_content_encoding',
      'storage_full',
      'rate_limit_exceeded',
      'queue_full',
    ],
  },
  {
    ...{ method: 'get', path: '/v1/files', id: 'listFiles', tag: 'Batches', access: 'key' },
    summary: "The tenant's files, page by page.",
    parameters: [
      after,
      limit(10_000, 10_000),
      query('order', { description: 'By the time of their making.', schema: { type: 'string', enum: ['asc', 'desc'], default: 'desc' } }),
      query('purpose', { schema: { type: 'string', enum: ['batch', 'batch_output'] } }),
    ],
    replies: [json(200, 'FileList', 'One page.')],
    refusals: ['invalid_value'],
  },
  {
    ...{ method: 'get', path: '/v1/files/{id}', id: 'retrieveFile', tag: 'Batches', access: 'key' },
    summary: 'What is known of a file.',
    parameters: [fileId],
    replies: [json(200, 'File', 'The file.')],
    refusals: ['not_found'],
  },
  {
    ...{ method: 'get', path: '/v1/files/{id}/content', id: 'retrieveFileContent', tag: 'Batches', access: 'key' },
    summary: 'What is in a file.',
    parameters: [fileId],
    replies: [{ status: 200, description: 'Its bytes.', content: { 'application/octet-stream': { type: 'string' } } }],
    refusals: ['not_found'],
  },
  {
    ...{ method: 'delete', path: '/v1/files/{id}', id: 'deleteFile', tag: 'Batches', access: 'key' },
    summary: 'Takes a file away; not one that a batch still reads.',
    parameters: [fileId],
    replies: [json(200, 'DeletedFile', 'It is gone.')],
    refusals: ['invalid_value', 'not_found'],
  },
  {
    ...{ method: 'post', path: '/v1/batches', id: 'createBatch', tag: 'Batches', access: 'key' },
    summary: 'Has the requests of a file done, when there is room for them.',
    description: 'At flex class, behind all that somebody waits for. Over restarts of everything each request has one result.',
    request: 'BatchRequest',
    replies: [{ ...json(200, 'Batch', 'It is begun.'), links: { retrieveBatch: toFile, cancelBatch: toFile } }],
    refusals: [...BODY_REFUSALS, 'rate_limit_exceeded', 'queue_full'],
  },
  {
    ...{ method: 'get', path: '/v1/batches', id: 'listBatches', tag: 'Batches', access: 'key' },
    summary: "The tenant's batches, newest first, page by page.",
    parameters: [after, limit(100, 20)],
    replies: [json(200, 'BatchList', 'One page.')],
    refusals: ['invalid_value'],
  },
  {
    ...{ method: 'get', path: '/v1/batches/{id}', id: 'retrieveBatch', tag: 'Batches', access: 'key' },
    summary: 'How far a batch is.',
    parameters: [batchId],
    replies: [json(200, 'Batch', 'As it is now.')],
    refusals: ['not_found'],
  },
  {
    ...{ method: 'post', path: '/v1/batches/{id}/cancel', id: 'cancelBatch', tag: 'Batches', access: 'key' },
    summary: 'Stops a batch; what is done stays.',
    parameters: [batchId],
    replies: [json(200, 'Batch', 'It is ending, or over.')],
    refusals: ['invalid_value', 'not_found', 'rate_limit_exceeded'],
  },
];
