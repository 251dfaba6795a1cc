/** ReplyCheck: what the fuzz bench takes for a fault in a reply, in each API's shape. */
import { expect, test } from 'vitest';
import { checkReply, type Dialect } from '../../bench/fuzz/reply-check.ts';

const SECRET = 'sk-secret';
const error = { message: 'wrong', type: 'invalid_request_error', param: 'model', code: 'invalid_value' };
const details = { error_code: 'invalid_value', param: 'model' };
const messageError = { type: 'error', error: { type: 'invalid_request_error', message: 'wrong', details }, request_id: 'req_1' };

function check(dialect: Dialect, status: number, body: unknown, headers: Record<string, string> = {}): Promise<{ outcome: string }> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return checkReply(new Response(text, { status, headers: { 'x-request-id': 'req_1', ...headers } }), SECRET, dialect);
}

const SSE = { 'content-type': 'text/event-stream; charset=utf-8' };
const frame = (type: string, data: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;

const begun = frame('response.created', {});

test.each<[Dialect, number, unknown, string, Record<string, string>?]>([
  ['completions', 400, { error }, 'refused (400)'],
  ['responses', 400, { error }, 'refused (400)'],
  ['messages', 400, messageError, 'refused (400)'],
  ['messages', 529, messageError, 'refused (529)', { 'retry-after': '1' }],
  ['completions', 400, { error: { ...error, message: 'Unrecognized request argument supplied: .', param: '' } }, 'refused (400)'],
  ['messages', 200, frame('message_start', {}) + frame('message_stop', {}), 'answered', SSE],
  ['messages', 200, frame('error', messageError), 'refused in the stream', SSE],
  ['responses', 200, begun + frame('response.incomplete', {}), 'answered', SSE],
  ['responses', 200, begun + frame('response.failed', { response: { error: { code: 'invalid_prompt' } } }), 'refused in the stream', SSE],
])('%s %d is in order: %j', async (dialect, status, body, outcome, headers) => {
  expect((await check(dialect, status, body, headers)).outcome).toBe(outcome);
});

test.each<[Dialect, number, unknown, RegExp, Record<string, string>?]>([
  ['completions', 500, { error }, /^500/],
  ['messages', 400, { error }, /no error object/],
  ['completions', 400, messageError, /no error object/],
  ['responses', 400, { error: { ...error, param: null } }, /no field is named/],
  ['completions', 400, { error: { ...error, param: '' } }, /no field is named/],
  ['messages', 400, { ...messageError, error: { ...messageError.error, details: { ...details, param: null } } }, /no field is named/],
  ['messages', 529, messageError, /without Retry-After/],
  ['messages', 200, frame('message_start', {}), /a stream that ends/, SSE],
  ['responses', 200, begun + frame('response.failed', { response: { error: { code: 'server_error' } } }), /a stream that ends/, SSE],
])('%s %d is a fault: %j', async (dialect, status, body, fault, headers) => {
  await expect(check(dialect, status, body, headers)).rejects.toThrow(fault);
});
