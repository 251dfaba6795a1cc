/** Refusal: what a schema has against a body, as one ApiError in OpenAI's words that names the field (`messages[0].content`). */
import type { z } from 'zod';
import { ApiError, type ErrorCode } from '../shared/errors.ts';

type Issue = z.core.$ZodIssue;

/** The first fault, and of a choice between forms the one in the form that came closest. */
export function refusal(error: z.ZodError): ApiError {
  const first = error.issues[0];
  if (first === undefined) return new ApiError('invalid_value', 'The request is not valid.');
  return describe(deepest(first));
}

/** As zod's path, `['messages', 0, 'content']`. */
export function paramName(path: readonly PropertyKey[]): string {
  let name = '';
  for (const key of path) name += typeof key === 'number' ? `[${key}]` : name === '' ? String(key) : `.${String(key)}`;
  return name;
}

/** A check of our own that fails: `refine` carries the code in its params. */
export function custom(code: ErrorCode): { params: { code: ErrorCode } } {
  return { params: { code } };
}

function deepest(issue: Issue, prefix: readonly PropertyKey[] = []): Issue {
  const path = [...prefix, ...issue.path];
  if (issue.code !== 'invalid_union') return { ...issue, path };
  let best: Issue | undefined;
  for (const branch of issue.errors) {
    const candidate = branch[0] === undefined ? undefined : deepest(branch[0], path);
    if (candidate !== undefined && (best === undefined || candidate.path.length > best.path.length)) best = candidate;
  }
  // Several forms, and the value has none of them: the forms are named by the union's own message.
  return best !== undefined && best.path.length > path.length ? best : { ...issue, path };
}

function describe(issue: Issue): ApiError {
  const param = paramName(issue.path);
  const detail = param === '' ? {} : { param };
  if (isMissing(issue)) return new ApiError('missing_required_parameter', `Missing required parameter: '${param}'.`, detail);
  if (issue.code === 'unrecognized_keys') {
    const unknown = paramName([...issue.path, issue.keys[0] ?? '']).slice(0, 128);
    return new ApiError('invalid_value', `Unrecognized request argument supplied: ${unknown}.`, { param: unknown });
  }
  if (issue.code === 'custom') {
    const code = (issue.params?.code as ErrorCode | undefined) ?? 'invalid_value';
    return new ApiError(code, issue.message, detail);
  }
  return new ApiError('invalid_value', `Invalid value for '${param}': ${complaint(issue)}`, detail);
}

function isMissing(issue: Issue): boolean {
  // The variants of an object are told apart by one field; the fault is the object's, the path that field's.
  if (issue.code === 'invalid_union' && issue.discriminator !== undefined) return fieldOf(issue.input, issue.discriminator) === undefined;
  return issue.code !== 'custom' && issue.code !== 'unrecognized_keys' && issue.input === undefined;
}

function fieldOf(value: unknown, key: PropertyKey): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<PropertyKey, unknown>)[key] : undefined;
}

function complaint(issue: Exclude<Issue, { code: 'custom' }>): string {
  switch (issue.code) {
    case 'invalid_type':
      return `expected ${article(issue.expected)}, but got ${kindOf(issue.input)} instead.`;
    case 'invalid_value':
      return `expected ${oneOf(issue.values)}, but got ${shown(issue.input)}.`;
    case 'invalid_union':
      return issue.discriminator === undefined
        ? `${issue.message}.`
        : `${shown(fieldOf(issue.input, issue.discriminator))} is not supported.`;
    case 'too_small':
      return `${measure(issue.origin)} must be ${issue.inclusive === false ? 'above' : 'at least'} ${issue.minimum}.`;
    case 'too_big':
      return `${measure(issue.origin)} must be ${issue.inclusive === false ? 'below' : 'at most'} ${issue.maximum}.`;
    default:
      return `${issue.message}.`;
  }
}

function measure(origin: string): string {
  if (origin === 'array') return 'the number of elements';
  if (origin === 'string') return 'the number of characters';
  return 'it';
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'number' && !Number.isFinite(value)) return 'a number that is not finite';
  if (typeof value === 'number' && !Number.isInteger(value)) return 'a decimal number';
  if (typeof value === 'number' && !Number.isSafeInteger(value)) return 'a number out of range';
  return article(typeof value);
}

function article(noun: string): string {
  const name = noun === 'int' ? 'integer' : noun;
  return /^[aeiou]/.test(name) ? `an ${name}` : `a ${name}`;
}

function oneOf(values: readonly unknown[]): string {
  const listed = values.map(value => `'${String(value)}'`);
  return listed.length === 1 ? listed[0]! : `one of ${listed.join(', ')}`;
}

/** A value may be as long as the body. */
function shown(value: unknown): string {
  return typeof value === 'string' ? `'${value.length > 64 ? `${value.slice(0, 64)}…` : value}'` : kindOf(value);
}
