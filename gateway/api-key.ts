/** ApiKey: who calls, told by the Authorization header alone, without I/O; comparison takes the same time whatever the key. */
import type { MiddlewareHandler } from 'hono';
import { ApiError } from '../shared/errors.ts';
import type { Settings } from './env.ts';

/** The caller of a request that was let in. */
export interface Caller {
  tenant: string;
}

export interface CallerVariables {
  caller: Caller;
}

const DEVELOPMENT_TENANT = 'dev';
/** Longer ones are nobody's, and comparing them would be work for free. */
const MAX_KEY_LENGTH = 512;

/** Throws `invalid_api_key`; the message never repeats what was sent. */
export function authenticate(header: string | undefined, settings: Pick<Settings, 'developmentKey'>): Caller {
  if (header === undefined || header === '') {
    throw new ApiError('invalid_api_key', "You didn't provide an API key. Send it in the header `Authorization: Bearer YOUR_KEY`.");
  }
  const key = /^Bearer +([\x21-\x7e]+) *$/i.exec(header)?.[1];
  if (key === undefined) throw new ApiError('invalid_api_key', 'The Authorization header must have the form `Bearer YOUR_KEY`.');
  const expected = settings.developmentKey;
  if (expected === undefined || key.length > MAX_KEY_LENGTH || !isSameText(key, expected)) {
    throw new ApiError('invalid_api_key', 'Incorrect API key provided.');
  }
  return { tenant: DEVELOPMENT_TENANT };
}

/** Lets a request on only with a valid key. */
export function requireKey(settings: Settings): MiddlewareHandler<{ Variables: CallerVariables }> {
  return async function checkKey(c, next) {
    c.set('caller', authenticate(c.req.header('authorization'), settings));
    await next();
  };
}

/** Looks at every character of `given`, whatever it finds. Only the length of `given`, which its sender knows, shows in the time. */
function isSameText(given: string, expected: string): boolean {
  let difference = given.length ^ expected.length;
  for (let i = 0; i < given.length; i++) difference |= given.charCodeAt(i) ^ expected.charCodeAt(i % expected.length);
  return difference === 0;
}
