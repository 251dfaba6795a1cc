/**
 * App: the Worker's entry. What every request passes, in this order, and where it ends. Only the app and the Durable Objects are
 * exported: workerd takes any other export for an entry point, and stops.
 */
import { env } from 'cloudflare:workers';
import { type Context, Hono } from 'hono';
import { ApiError, toApiError } from '../shared/errors.ts';
import { requireAdministrator } from './administrator.ts';
import { requireKey } from './api-key.ts';
import type { AppEnv } from './app-env.ts';
import { ClosedDoors, reopens } from './closed-doors.ts';
import { cors } from './cors.ts';
import { readSettings } from './env.ts';
import { errorResponse } from './error-response.ts';
import { lingering } from './linger.ts';
import { inMessageShape } from './messages/message-error.ts';
import { metered } from './metered.ts';
import { counted } from './metrics/counted.ts';
import { RequestCounts } from './metrics/request-counts.ts';
import { requestLog } from './request-log.ts';
import { drainBatcher, listBatchers } from './routes/admin-batchers.ts';
import { changeKey, createKey, listKeys, revokeKey } from './routes/admin-keys.ts';
import { listQueues } from './routes/admin-queues.ts';
import { deleteTenant, listTenants, putTenant, retrieveTenant } from './routes/admin-tenants.ts';
import { listUsage } from './routes/admin-usage.ts';
import { cancelBatch, createBatch, listBatches, retrieveBatch } from './routes/batches.ts';
import { chatCompletions } from './routes/chat-completions.ts';
import { completions } from './routes/completions.ts';
import { docs, docsReader } from './routes/docs.ts';
import { embeddings } from './routes/embeddings.ts';
import { createFile, deleteFile, listFiles, retrieveContent, retrieveFile } from './routes/files.ts';
import { health, ready } from './routes/health.ts';
import { countTokens, messages } from './routes/messages.ts';
import { metrics } from './routes/metrics.ts';
import { listModels, retrieveModel } from './routes/models.ts';
import { openapi } from './routes/openapi.ts';
import { playground } from './routes/playground.ts';
import { cancelResponse, createResponse, deleteResponse, listInputItems, retrieveResponse } from './routes/responses.ts';
import { scale } from './routes/scale.ts';
import { cancelStream, resumeByToken, resumeStream } from './routes/streams.ts';
import { quick } from './routes/tokenize.ts';

export { Batches } from './batches/batches.ts';
export { Broker } from './broker.ts';
export { Directory } from './directory.ts';
export { Tenant } from './tenant.ts';

// Read while the Worker starts, so that a bad value is an error then and not at the first request.
const settings = readSettings(env as unknown as Record<string, unknown>);

const doors = new ClosedDoors();
const counts = new RequestCounts();
const app = new Hono<AppEnv>();

app.use(requestLog(settings)); // outermost: it names and records whatever comes of a request
app.use(counted(counts, settings)); // within it: what it counts has a name in the log
app.use(cors()); // before the key: browsers send preflights without one
app.use('/v1/messages/*', inMessageShape()); // before the key: its refusals have this shape too
app.get('/v1/streams/:id', resumeByToken(settings)); // before the key: a token in the URL stands for it
app.use(lingering()); // before the key: who is refused in the middle of a body is to read why
for (const path of ['/v1/*', '/tokenize', '/detokenize']) {
  app.use(path, requireKey(settings)); // before the body: nothing is read for a stranger
  app.use(path, metered(doors)); // after the key: the account is its owner's
}
app.use('/admin/*', requireAdministrator(settings), reopens(doors));

app.get('/', playground()).all(allow('GET'));
app.get('/health', health).all(allow('GET'));
app.get('/ready', ready(settings)).all(allow('GET'));
app.get('/metrics', metrics(counts, settings)).all(allow('GET'));
app.get('/scale', scale(settings)).all(allow('GET'));
app.get('/openapi.json', openapi).all(allow('GET'));
app.get('/docs', docs).all(allow('GET'));
app.get('/docs/reader.js', docsReader).all(allow('GET'));
app.get('/v1/models', listModels(settings)).all(allow('GET'));
app.get('/v1/models/:id', retrieveModel(settings)).all(allow('GET'));
app.post('/v1/chat/completions', chatCompletions(settings)).all(allow('POST'));
app.post('/v1/completions', completions(settings)).all(allow('POST'));
app.post('/v1/messages', messages(settings)).all(allow('POST'));
app.post('/v1/messages/count_tokens', countTokens(settings)).all(allow('POST'));
app.post('/v1/embeddings', embeddings(settings)).all(allow('POST'));
app.post('/tokenize', quick(settings, 'tokenize')).all(allow('POST'));
app.post('/detokenize', quick(settings, 'detokenize')).all(allow('POST'));
app.post('/v1/files', createFile(settings)).get(listFiles).all(allow('GET, POST'));
app.get('/v1/files/:id', retrieveFile).delete(deleteFile).all(allow('GET, DELETE'));
app.get('/v1/files/:id/content', retrieveContent).all(allow('GET'));
app.post('/v1/batches', createBatch(settings)).get(listBatches).all(allow('GET, POST'));
app.get('/v1/batches/:id', retrieveBatch).all(allow('GET'));
app.post('/v1/batches/:id/cancel', cancelBatch).all(allow('POST'));
app.post('/v1/responses', createResponse(settings)).all(allow('POST'));
app.get('/v1/responses/:id', retrieveResponse(settings)).delete(deleteResponse(settings)).all(allow('GET, DELETE'));
app.get('/v1/responses/:id/input_items', listInputItems(settings)).all(allow('GET'));
app.post('/v1/responses/:id/cancel', cancelResponse(settings)).all(allow('POST'));
app.get('/v1/streams/:id', resumeStream(settings)).delete(cancelStream(settings)).all(allow('GET, DELETE'));

app.post('/admin/tenants', putTenant(settings)).get(listTenants(settings)).all(allow('GET, POST'));
app.get('/admin/tenants/:name', retrieveTenant(settings)).delete(deleteTenant()).all(allow('GET, DELETE'));
app.post('/admin/keys', createKey(settings)).get(listKeys(settings)).all(allow('GET, POST'));
app.post('/admin/keys/:id', changeKey(settings)).delete(revokeKey(settings)).all(allow('POST, DELETE'));
app.get('/admin/usage', listUsage(settings)).all(allow('GET'));
app.get('/admin/batchers', listBatchers(settings)).all(allow('GET'));
app.get('/admin/queues', listQueues(settings)).all(allow('GET'));
app.post('/admin/batchers/:id/drain', drainBatcher(settings)).all(allow('POST'));

app.notFound(c => errorResponse(new ApiError('not_found', `Invalid URL (${c.req.method} ${c.req.path.slice(0, 256)}).`)));

app.onError((thrown, c) => {
  const error = toApiError(thrown);
  if (error.status >= 500 && error.cause !== undefined) {
    const isOurs = error.code === 'internal_error';
    const cause = isOurs && error.cause instanceof Error ? (error.cause.stack ?? error.cause.message) : String(error.cause);
    const line = { event: isOurs ? 'fault' : 'request_failed', requestId: c.get('requestId'), traceId: c.get('trace').traceId };
    console.error(JSON.stringify({ at: new Date().toISOString(), ...line, code: error.code, cause }));
  }
  return errorResponse(error);
});

/** A path that is there, under a method that is not. */
function allow(method: string) {
  return (c: Context<AppEnv>): Response => {
    const response = errorResponse(new ApiError('method_not_allowed', `Not allowed: ${c.req.method} on this URL, which takes ${method}.`));
    response.headers.set('allow', method);
    return response;
  };
}

export default app;
