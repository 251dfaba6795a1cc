/**
 * LineApp: a line of a batch as a request like any other: the handler of its endpoint, behind no key but as its owner, at flex class; let in by
 * the same limits, answered by the same broker, written in the ledger the same.
 */
import { Hono } from 'hono';
import { ApiError, errorBody, toApiError } from '../../shared/errors.ts';
import type { AppEnv } from '../app-env.ts';
import { ClosedDoors } from '../closed-doors.ts';
import type { Env, Settings } from '../env.ts';
import { errorResponse } from '../error-response.ts';
import { requestTrace } from '../request-trace.ts';
import { chatCompletions } from '../routes/chat-completions.ts';
import { completions } from '../routes/completions.ts';
import { embeddings } from '../routes/embeddings.ts';
import { createResponse } from '../routes/responses.ts';
import { cancelStream, resumeStream } from '../routes/streams.ts';
import type { LineUsage } from './batch-output.ts';
import type { LineCall, LineResult } from './batch-runner.ts';

/** Nothing of what was asked for stands in the way for good: a limit, a full queue, something that is away. */
const LATER: ReadonlySet<number> = new Set([429, 503]);
/** A line waits for as long as its batch has time. */
const MAX_WAIT_MS = '86400000';
/** An answer that broke off is read on so often. */
const MAX_READS = 5;
const CANCEL_AGAIN_MS = 1_000;
const STREAM_ID_HEADER = 'x-sluice-stream-id';

interface Caller {
  tenant: string;
  keyId: string;
}

interface Call {
  caller: Caller;
  logged: AppEnv['Variables']['logged'];
}

export class LineApp {
  readonly #app = new Hono<AppEnv>();
  readonly #env: Env;

  constructor(env: Env, settings: Settings) {
    this.#env = env;
    const doors = new ClosedDoors();
    this.#app.use(async (c, next) => {
      const { caller, logged } = c.env.call as Call;
      c.set('caller', caller);
      c.set('isBackground', true);
      c.set('requestId', `req_${crypto.randomUUID().replaceAll('-', '')}`);
      c.set('trace', requestTrace(new Headers()));
      c.set('logged', logged);
      c.set('doors', doors);
      await next();
      c.res.headers.set('x-request-id', c.get('requestId'));
    });
    this.#app.onError(thrown => errorResponse(toApiError(thrown)));
    this.#app.post('/v1/chat/completions', chatCompletions(settings));
    this.#app.post('/v1/completions', completions(settings));
    this.#app.post('/v1/embeddings', embeddings(settings));
    this.#app.post('/v1/responses', createResponse(settings));
    this.#app.get('/v1/streams/:id', resumeStream(settings)).delete(cancelStream(settings));
  }

  /** `signal`: the answer is wanted no more, and the work on it is stopped. */
  async execute({ tenant, keyId, endpoint, body, idempotencyKey }: LineCall, signal: AbortSignal): Promise<LineResult> {
    const call: Call = { caller: { tenant, keyId }, logged: {} };
    const stop = new AbortController();
    signal.addEventListener('abort', () => void this.#cancel(call, stop.signal), { once: true, signal: stop.signal });
    try {
      const param = ['stream', 'background'].find(name => body[name] === true);
      if (param !== undefined) {
        const message = `Invalid value for '${param}': the answers of a batch come whole, in its file.`;
        return failed(new ApiError('invalid_value', message, { param }));
      }
      const text = written({ ...body, stream: false, service_tier: 'flex' });
      if (text === undefined) return failed(new ApiError('invalid_json', 'The request body is nested too deep.'));
      const response = await this.#fetch(call, endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': idempotencyKey, 'x-sluice-max-wait-ms': MAX_WAIT_MS },
        body: text,
      });
      call.logged.jobId = response.headers.get(STREAM_ID_HEADER) ?? call.logged.jobId ?? '';
      return await this.#read(call, response);
    } catch (cause) {
      console.error(JSON.stringify({ at: new Date().toISOString(), event: 'fault', line: idempotencyKey, cause: String(cause) }));
      return failed(toApiError(cause));
    } finally {
      stop.abort();
    }
  }

  /** The whole of the answer. What breaks off under a status that promised one is asked for again, and then says why it did. */
  async #read(call: Call, first: Response): Promise<LineResult> {
    let response = first;
    const requestId = first.headers.get('x-request-id') ?? '';
    for (let reads = 1; ; reads++) {
      if (LATER.has(response.status)) return { outcome: 'later', afterMs: retryAfterMs(response) };
      const text = await response.text().catch(() => undefined);
      const usage = text === undefined ? undefined : usageOf(text);
      if (text !== undefined && usage !== undefined) return { outcome: 'answered', status: response.status, requestId, body: text, usage };
      if (reads === MAX_READS) return { ...failed(new ApiError('generation_failed', 'The answer broke off.')), requestId };
      response = await this.#fetch(call, `/v1/streams/${String(call.logged.jobId)}`);
    }
  }

  /** Until it is over: the job may not have reached its broker yet. */
  async #cancel(call: Call, isOver: AbortSignal): Promise<void> {
    while (!isOver.aborted) {
      const id = String(call.logged.jobId ?? '');
      if (id !== '') await this.#fetch(call, `/v1/streams/${id}`, { method: 'DELETE' });
      await new Promise(resolve => setTimeout(resolve, CANCEL_AGAIN_MS));
    }
  }

  async #fetch(call: Call, path: string, init?: RequestInit): Promise<Response> {
    return await this.#app.fetch(new Request(`http://batch${path}`, init), { ...this.#env, call });
  }
}

/** Undefined for what is nested deeper than can be written. */
function written(body: Record<string, unknown>): string | undefined {
  try {
    return JSON.stringify(body);
  } catch {
    return undefined;
  }
}

/** Of a reply's body; undefined for one that is not whole. */
function usageOf(text: string): LineUsage | undefined {
  try {
    return (JSON.parse(text) as { usage?: LineUsage | null }).usage ?? {};
  } catch {
    return undefined;
  }
}

function failed(error: ApiError): LineResult & { outcome: 'answered' } {
  return { outcome: 'answered', status: errorResponse(error).status, requestId: '', body: JSON.stringify(errorBody(error)), usage: {} };
}

function retryAfterMs(response: Response): number | undefined {
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  return Number.isFinite(seconds) ? seconds * 1000 : undefined;
}
