/**
 * StructureFields: what a body says of the form of its answer (`response_format` and the guided_* extensions), as zod fields and as the one structure
 * that they come to. Here sizes and forms are checked; what a schema, a pattern or a grammar says is for the batcher, which refuses before any reply.
 */
import { z } from 'zod';
import type { Structure } from '../shared/job.ts';
import type { Complain } from './generation-fields.ts';
import { custom } from './refusal.ts';

/** Of a schema as JSON, of a grammar, of all choices together. */
const MAX_CHARACTERS = 65_536;
const MAX_PATTERN_CHARACTERS = 4_096;
const MAX_CHOICES = 1_000;
/** Text that a schema is read of; one that is nested deeper than the body may be has been refused before. */
export const Schema = z
  .record(z.string(), z.unknown())
  .refine(schema => JSON.stringify(schema).length <= MAX_CHARACTERS, { message: `A schema may have at most ${MAX_CHARACTERS} characters.` })
  .meta({ description: 'A JSON schema, of draft 2020-12 or before.' });

/** What is said of a schema beside it, in every call. */
export const SCHEMA_LABELS = {
  name: z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, "a name has 1 to 64 letters, digits, '_' and '-'"),
  description: z.string().max(MAX_CHARACTERS).nullish(),
  strict: z.boolean().nullish().describe('Answers are held to the schema in any case.'),
};

const SchemaFormat = z.object({
  type: z.literal('json_schema'),
  json_schema: z.object({
    ...SCHEMA_LABELS,
    schema: Schema.nullish(),
  }),
});

export const ResponseFormat = z
  .discriminatedUnion('type', [z.object({ type: z.literal('text') }), z.object({ type: z.literal('json_object') }), SchemaFormat])
  .nullish()
  .describe('The answer is text, any JSON object, or a JSON value of this schema.');

export const GUIDED_FIELDS = {
  guided_json: Schema.nullish().describe('An extension: the answer is a JSON value of this schema.'),
  guided_regex: z
    .string()
    .min(1)
    .max(MAX_PATTERN_CHARACTERS)
    .nullish()
    .describe('An extension: the answer as a whole matches this regular expression.'),
  guided_choice: z
    .array(z.string().min(1))
    .min(1)
    .max(MAX_CHOICES)
    .refine(choices => choices.reduce((sum, text) => sum + text.length, 0) <= MAX_CHARACTERS, {
      message: `Choices may have at most ${MAX_CHARACTERS} characters together.`,
      ...custom('invalid_value'),
    })
    .nullish()
    .describe('An extension: the answer is one of these texts.'),
  guided_grammar: z
    .string()
    .min(1)
    .max(MAX_CHARACTERS)
    .nullish()
    .describe('An extension: the answer as a whole matches the rule `root` of this grammar, in EBNF.'),
};

const GuidedBody = z.object(GUIDED_FIELDS);
type StructureBody = z.output<typeof GuidedBody> & { response_format?: z.output<typeof ResponseFormat> };

/** A field that gives the whole answer a form, whatever it is. */
export function guidedFieldOf(body: StructureBody): string | undefined {
  return structuresOf(body).find(({ param }) => param !== 'response_format')?.param;
}

/** An answer has one form. */
export function checkStructure(body: StructureBody, complain: Complain): void {
  const fields = structuresOf(body).map(structure => structure.param);
  if (fields.length > 1)
    complain(fields[1]!, `'${fields[0]}' and '${fields[1]}' cannot be given together: both say what form the answer has.`);
}

export function structureOf(body: StructureBody): Structure | undefined {
  return structuresOf(body)[0];
}

function structuresOf(body: StructureBody): Structure[] {
  const { response_format: format, guided_json, guided_regex, guided_choice, guided_grammar } = body;
  const structures: Structure[] = [];
  if (format?.type === 'json_object') structures.push({ kind: 'json', param: 'response_format' });
  if (format?.type === 'json_schema') {
    structures.push({ kind: 'schema', param: 'response_format', schema: format.json_schema.schema ?? {} });
  }
  if (guided_json) structures.push({ kind: 'schema', param: 'guided_json', schema: guided_json });
  if (guided_regex) structures.push({ kind: 'regex', param: 'guided_regex', pattern: guided_regex.toWellFormed() });
  if (guided_choice) structures.push({ kind: 'choice', param: 'guided_choice', choices: guided_choice.map(text => text.toWellFormed()) });
  if (guided_grammar) structures.push({ kind: 'grammar', param: 'guided_grammar', grammar: guided_grammar.toWellFormed() });
  return structures;
}
