/**
 * TraceContext: a request's place in its caller's trace, as W3C Trace Context writes it (https://www.w3.org/TR/trace-context/). What does not
 * keep to the letter of the recommendation is no context: the request then begins a trace of its own.
 */

export interface TraceParent {
  /** 32 hexadecimal digits, not all 0. */
  traceId: string;
  /** 16 hexadecimal digits, not all 0. */
  spanId: string;
  /** Whether the caller records the trace. */
  isSampled: boolean;
}

/** A later version may go on after a further hyphen; `ff` is none. */
const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const MAX_LENGTH = 512;
const MEMBER = /^[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;
const MAX_MEMBERS = 32;
const MAX_STATE_LENGTH = 512;

export function parseTraceparent(text: string | null | undefined): TraceParent | undefined {
  if (!text || text.length > MAX_LENGTH) return undefined;
  const [, version, traceId, spanId, flags, rest] = TRACEPARENT.exec(text) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  if (version === '00' && rest !== undefined) return undefined;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export function formatTraceparent({ traceId, spanId, isSampled }: TraceParent): string {
  return `00-${traceId}-${spanId}-${isSampled ? '01' : '00'}`;
}

/** As it came, for those further on; undefined for one that is no list of key and value, or longer than has to be passed on. */
export function validTracestate(text: string | null | undefined): string | undefined {
  if (!text || text.length > MAX_STATE_LENGTH) return undefined;
  const members = text.split(',').map(member => member.trim());
  const named = members.filter(member => member !== '');
  const isValid = named.length > 0 && named.length <= MAX_MEMBERS && named.every(member => MEMBER.test(member));
  return isValid ? named.join(',') : undefined;
}
