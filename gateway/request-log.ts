/**
 * RequestLog: gives each request an id and a place in its caller's trace, and writes one JSON line when its reply begins; never a prompt, an
 * answer or a key.
 */
import type { MiddlewareHandler } from 'hono';
import type { CallerVariables } from './api-key.ts';
import type { Settings } from './env.ts';
import { ERROR_CODE_HEADER } from './error-response.ts';
import { LogLines } from './log-lines.ts';
import { type RequestTrace, requestTrace, TRACE_RESPONSE_HEADER } from './request-trace.ts';

export interface RequestIdVariables {
  requestId: string;
  trace: RequestTrace;
}

/** What handlers add to the line. */
export interface LogVariables {
  logged: Record<string, string | number | boolean>;
}

/** A client's own id is kept when it is short and harmless to logs. */
const CLIENT_ID = /^[\w.:-]{1,128}$/;

export function requestLog(
  settings: Settings,
): MiddlewareHandler<{ Variables: RequestIdVariables & LogVariables & Partial<CallerVariables> }> {
  const lines = new LogLines({ gatherMs: settings.logGatherMs, print: text => console.log(text) });
  return async function logRequest(c, next) {
    const startedAt = Date.now();
    const given = c.req.header('x-request-id');
    const requestId = given !== undefined && CLIENT_ID.test(given) ? given : `req_${crypto.randomUUID().replaceAll('-', '')}`;
    const trace = requestTrace(c.req.raw.headers);
    c.set('requestId', requestId);
    c.set('trace', trace);
    c.set('logged', {});
    await next();
    const { headers } = c.res;
    const code = headers.get(ERROR_CODE_HEADER) ?? undefined;
    if (code !== undefined) headers.delete(ERROR_CODE_HEADER);
    headers.set('x-request-id', requestId);
    headers.set(TRACE_RESPONSE_HEADER, trace.traceparent);
    if (settings.accessLog === 'off') return;
    const line = {
      at: new Date(startedAt).toISOString(),
      event: 'request',
      requestId,
      traceId: trace.traceId,
      parentSpanId: trace.parentSpanId,
      method: c.req.method,
      path: c.req.path.slice(0, 256),
      status: c.res.status,
      code,
      headMs: Date.now() - startedAt,
      tenant: c.get('caller')?.tenant,
      ...c.get('logged'),
    };
    lines.write(line, task => c.executionCtx.waitUntil(task()));
  };
}
