/** RequestTrace: the span that a request is here, within the trace that its headers tell of, or within one of its own. */
import { formatTraceparent, parseTraceparent, validTracestate } from '../shared/trace-context.ts';
import { toHex } from './hex.ts';

export interface RequestTrace {
  traceId: string;
  /** Of the caller's span; absent where the trace begins here. */
  parentSpanId: string | undefined;
  /** Ours, for those further on. */
  traceparent: string;
  tracestate: string | undefined;
}

export const TRACE_RESPONSE_HEADER = 'traceresponse';

const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;

export function requestTrace(headers: Headers): RequestTrace {
  const parent = parseTraceparent(headers.get('traceparent'));
  // One draw for both.
  const byteCount = parent === undefined ? TRACE_ID_BYTES + SPAN_ID_BYTES : SPAN_ID_BYTES;
  const random = toHex(crypto.getRandomValues(new Uint8Array(byteCount)));
  const spanId = random.slice(0, 2 * SPAN_ID_BYTES);
  const traceId = parent?.traceId ?? random.slice(2 * SPAN_ID_BYTES);
  return {
    traceId,
    parentSpanId: parent?.spanId,
    traceparent: formatTraceparent({ traceId, spanId, isSampled: parent?.isSampled ?? true }),
    tracestate: parent === undefined ? undefined : validTracestate(headers.get('tracestate')),
  };
}

/** As the fields of a job. */
export function tracing({ traceparent, tracestate }: RequestTrace): { traceparent: string; tracestate?: string } {
  return { traceparent, ...(tracestate !== undefined && { tracestate }) };
}
