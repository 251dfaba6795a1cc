/**
 * ReplyCheck: whether a reply of the gateway is one that it may give, whatever was asked: an answer, or an error in the shape of its call that
 * names the field at fault; in time, and no fault of ours.
 */
import { ApiError, isErrorCode } from '../../shared/errors.ts';

/** How a call tells errors, and ends its streams. */
export type Dialect = 'completions' | 'responses' | 'messages';

const STREAM_ENDS: Record<Dialect, RegExp> = {
  completions: /\ndata: \[DONE\]\n\n$/,
  responses: /\nevent: response\.(completed|incomplete)\ndata: .+\n\n$/,
  messages: /\nevent: message_stop\ndata: .+\n\n$/,
};
/** Refusals repeat little of what was sent. */
const MAX_ERROR_BYTES = 4_096;
/** What a busy or broken dependency is answered with; nothing else of 500 and more is any input's doing. */
const STATED = new Set([501, 503, 529]);
const AWAY = new Set([503, 529]);
/** What is wrong with one field is said with its name. */
const OF_A_FIELD: ReadonlySet<string> = new Set(['invalid_value', 'missing_required_parameter', 'unsupported_parameter']);

export interface CheckedReply {
  /** For the table. */
  outcome: string;
  status: number;
}

/** Reads it to its end. Throws what is wrong with it. `secret` must not be in it. */
export async function checkReply(response: Response, secret: string, dialect: Dialect = 'completions'): Promise<CheckedReply> {
  const text = await response.text();
  const { status, headers } = response;
  if (text.includes(secret) || [...headers.values()].some(value => value.includes(secret))) throw new Error('the reply holds the key');
  if (!headers.has('x-request-id')) throw new Error(`${status} without x-request-id: ${text.slice(0, 200)}`);
  if (status < 400) {
    if (headers.get('content-type')?.startsWith('text/event-stream')) return { outcome: streamOutcome(text, dialect), status };
    if (text !== '') JSON.parse(text);
    return { outcome: 'answered', status };
  }
  if (status >= 500 && !STATED.has(status)) throw new Error(`${status}: ${text.slice(0, 400)}`);
  if (text.length > MAX_ERROR_BYTES) throw new Error(`${status} with ${text.length} bytes`);
  if (text === '' && response.headers.get('content-length') === '0') return { outcome: `refused (${status})`, status };
  const { error } = JSON.parse(text) as { error?: Record<string, unknown> };
  const code = dialect === 'messages' ? messageErrorCode(error) : errorCode(error);
  if (code === undefined) throw new Error(`no error object: ${text.slice(0, 200)}`);
  if (!isErrorCode(code)) throw new Error(`unknown code: ${text.slice(0, 200)}`);
  if (typeof error?.message !== 'string' || /(?![\t\n])\p{Cc}/u.test(error.message))
    throw new Error(`no plain message: ${text.slice(0, 200)}`);
  const { param } = (dialect === 'messages' ? error.details : error) as { param?: unknown };
  if (OF_A_FIELD.has(code) && !isFieldNamed(param, error.message)) throw new Error(`no field is named: ${text.slice(0, 400)}`);
  if (AWAY.has(status) && headers.get('retry-after') === null) throw new Error(`${status} without Retry-After: ${text}`);
  return { outcome: `refused (${status})`, status };
}

/** A field that nobody knows may have any name, none too. */
function isFieldNamed(param: unknown, message: string): boolean {
  return typeof param === 'string' && (param !== '' || message.startsWith('Unrecognized request argument'));
}

/** Undefined where it is no whole error. */
function errorCode(error: Record<string, unknown> | undefined): string | undefined {
  const keys = Object.keys(error ?? {}).sort();
  return keys.join() === 'code,message,param,type' ? String(error?.code) : undefined;
}

function messageErrorCode(error: Record<string, unknown> | undefined): string | undefined {
  const keys = Object.keys(error ?? {}).sort();
  return keys.join() === 'details,message,type' ? String((error?.details as Record<string, unknown> | null)?.error_code) : undefined;
}

/** A prompt that only the batcher can judge may be refused in its stream; a failure of ours may not be there. */
function streamOutcome(text: string, dialect: Dialect): string {
  // A response that has failed tells no more than whose fault it was.
  if (dialect === 'responses' && /\nevent: response\.failed\ndata: .*"code":"invalid_prompt"/.test(text)) return 'refused in the stream';
  const error = /^data: (\{(?:"type":"error",)?"error".*)$/m.exec(text)?.[1];
  if (error === undefined) {
    if (!STREAM_ENDS[dialect].test(text)) throw new Error(`a stream that ends with ${JSON.stringify(text.slice(-200))}`);
    return 'answered';
  }
  const told = (JSON.parse(error) as { error: Record<string, unknown> }).error;
  const code = dialect === 'messages' ? messageErrorCode(told) : errorCode(told);
  if (code === undefined || !isErrorCode(code) || new ApiError(code, '').status >= 500)
    throw new Error(`a stream with the error ${error.slice(0, 300)}`);
  return 'refused in the stream';
}
