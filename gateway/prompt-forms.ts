/**
 * PromptForms: what OpenAI's calls take for a prompt or an input: one text, several, token ids, or several lists of them; as a schema, and as
 * the API's description tells it. Read by hand, since a schema would try each form on each of a million token ids.
 */
import { z } from 'zod';
import type { Prompt } from '../shared/job.ts';
import { custom } from './refusal.ts';

export interface PromptField {
  field: string;
  /** Prompts at most. */
  most: number;
  /** What several are called. */
  what: string;
  /** What stands for null, which is refused when this is absent. */
  onNull?: Prompt;
  /** A text must have a character. */
  isEmptyRefused?: boolean;
}

export const MAX_TOKEN_ID = 2 ** 31 - 1;
const FORMS = 'expected a string, an array of strings, an array of token ids or an array of arrays of token ids';
const TOKEN_IDS_FORM = { type: 'array', minItems: 1, items: { type: 'integer', minimum: 0, maximum: MAX_TOKEN_ID } };

export function promptsSchema(options: PromptField) {
  return z.unknown().transform((value, context): Prompt[] => parse(value, context, options));
}

/** For the description of a field. */
export function promptForms(options: { most: number; isNullable: boolean; description: string; example: string }) {
  const { most, isNullable, description, example } = options;
  return {
    description,
    examples: [example],
    anyOf: [
      { type: 'string' },
      ...(isNullable ? [{ type: 'null' }] : []),
      { type: 'array', minItems: 1, maxItems: most, items: { type: 'string' } },
      TOKEN_IDS_FORM,
      { type: 'array', minItems: 1, maxItems: most, items: TOKEN_IDS_FORM },
    ],
  };
}

export function textPrompt(text: string): Prompt {
  return { kind: 'text', text: text.toWellFormed() };
}

function parse(
  value: unknown,
  context: z.core.$RefinementCtx,
  { field, most, what, onNull, isEmptyRefused = false }: PromptField,
): Prompt[] {
  const refuse = (message: string, path: number[] = []): never => {
    const param = path.reduce((name, index) => `${name}[${index}]`, field);
    context.issues.push({
      code: 'custom',
      input: value,
      path,
      message: `Invalid value for '${param}': ${message}.`,
      ...custom('invalid_value'),
    });
    return z.NEVER;
  };
  if (value === undefined) {
    context.issues.push({
      code: 'custom',
      input: value,
      message: `Missing required parameter: '${field}'.`,
      ...custom('missing_required_parameter'),
    });
    return z.NEVER;
  }
  if (value === null && onNull !== undefined) return [onNull];
  if (value === '' && isEmptyRefused) return refuse('it must not be empty');
  if (typeof value === 'string') return [textPrompt(value)];
  if (!Array.isArray(value)) return refuse(FORMS);
  if (value.length === 0) return refuse('the number of elements must be at least 1');
  if (typeof value[0] === 'number') {
    const fault = value.findIndex(id => !isTokenId(id));
    return fault === -1 ? [{ kind: 'tokens', tokenIds: value }] : refuse('expected a token id', [fault]);
  }
  if (value.length > most) return refuse(`the number of ${what} must be at most ${most}`);
  const prompts: Prompt[] = [];
  for (const [index, one] of value.entries()) {
    if (typeof one !== typeof value[0]) return refuse(`all ${what} must be of one form`, [index]);
    if (one === '' && isEmptyRefused) return refuse('it must not be empty', [index]);
    if (typeof one === 'string') {
      prompts.push(textPrompt(one));
      continue;
    }
    if (!Array.isArray(one)) return refuse(FORMS, [index]);
    if (one.length === 0) return refuse('the number of elements must be at least 1', [index]);
    const fault = one.findIndex(id => !isTokenId(id));
    if (fault !== -1) return refuse('expected a token id', [index, fault]);
    prompts.push({ kind: 'tokens', tokenIds: one });
  }
  return prompts;
}

function isTokenId(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_TOKEN_ID;
}
