import { expect, test } from 'vitest';
import { messageErrorTypeOf, messageStatusOf } from '../../../gateway/messages/message-error.ts';
import { ERROR_CODES, type ErrorCode } from '../../../shared/errors.ts';

/** As Anthropic's documentation pairs them; of a status that it does not name, by its class. */
const PAIRS: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  405: 'invalid_request_error',
  409: 'invalid_request_error',
  413: 'request_too_large',
  415: 'invalid_request_error',
  429: 'rate_limit_error',
  500: 'api_error',
  501: 'api_error',
  529: 'overloaded_error',
};

test('each code has a status of theirs, and the type that goes with it', () => {
  for (const code of ERROR_CODES) expect(messageErrorTypeOf(code), code).toBe(PAIRS[messageStatusOf(code)]);
});

test.each<[ErrorCode, number]>([
  ['rate_limit_exceeded', 429],
  ['queue_full', 529],
  ['no_batcher', 529],
  ['dependency_unavailable', 529],
  ['body_too_large', 413],
  ['request_cancelled', 400],
  ['internal_error', 500],
])('%s is %i', (code, status) => {
  expect(messageStatusOf(code)).toBe(status);
});
