/**
 * SchemaRun: the hundred schemas of schemas.json as requests to a running gateway, at temperature 1, many at a time; each answer is checked by ajv,
 * which shares nothing with what held the answer to its schema.
 */
import { readFile } from 'node:fs/promises';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import type { Target } from '../load-client.ts';

export interface SchemaCase {
  name: string;
  /** What the model is told, where its name will not do: one that nests without end is shown an end. */
  ask?: string;
  schema: object;
  /** It cannot be held to: the place that the refusal is to name. */
  refusedAt?: string;
}

export interface SchemaOutcome {
  name: string;
  seed: number;
  status: number;
  /** Of a whole answer. */
  text: string;
  completionTokens: number;
  /**
   * It came to its end because of MAX_TOKENS, which its finish_reason says: the schema lets texts be of any length, and the model did not come to an
   * end. Whole all the same.
   */
  isWoundUp: boolean;
  /** Why it is not as it should be; undefined where it is. */
  fault: string | undefined;
}

/** Enough for every schema of the list, unless the model goes on where the schema lets it. */
const MAX_TOKENS = 1_200;
const TRIES = 3;

export async function loadSchemas(): Promise<SchemaCase[]> {
  return JSON.parse(await readFile(new URL('./schemas.json', import.meta.url), 'utf8')) as SchemaCase[];
}

export async function runSchemas(
  target: Target,
  { cases, seeds, concurrency }: { cases: readonly SchemaCase[]; seeds: readonly number[]; concurrency: number },
): Promise<SchemaOutcome[]> {
  const work = seeds.flatMap(seed => cases.map(one => ({ one, seed })));
  const outcomes: SchemaOutcome[] = [];
  const worker = async (): Promise<void> => {
    for (;;) {
      const next = work.pop();
      if (next === undefined) return;
      outcomes.push(await runOne(target, next.one, next.seed));
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return outcomes;
}

interface Reply {
  choices: { message: { content: string }; finish_reason: string }[];
  usage: { completion_tokens: number };
}

async function runOne(target: Target, one: SchemaCase, seed: number): Promise<SchemaOutcome> {
  const response = await ask(target, one, seed);
  const outcome = { name: one.name, seed, status: response.status, text: '', completionTokens: 0, isWoundUp: false };
  const body = (await response.json()) as Partial<Reply> & { error?: { message: string; param: string | null } };
  if (one.refusedAt !== undefined) {
    const isTold =
      response.status === 400 && body.error?.param === 'response_format' && body.error.message.includes(` at ${one.refusedAt}:`);
    return { ...outcome, fault: isTold ? undefined : `${response.status} ${JSON.stringify(body).slice(0, 300)}` };
  }
  if (response.status !== 200) return { ...outcome, fault: `${response.status} ${body.error?.message}` };
  const [choice] = (body as Reply).choices;
  const { content } = choice!.message;
  const completionTokens = (body as Reply).usage.completion_tokens;
  const isWoundUp = choice!.finish_reason === 'length';
  return { ...outcome, text: content, completionTokens, isWoundUp, fault: faultOf(one.schema, content) };
}

async function ask({ baseUrl, apiKey }: Target, one: SchemaCase, seed: number): Promise<Response> {
  const body = {
    model: 'default',
    messages: [{ role: 'user', content: one.ask ?? `Answer in JSON: ${one.name}.` }],
    temperature: 1,
    seed,
    max_tokens: MAX_TOKENS,
    response_format: { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema: one.schema } },
  };
  for (let left = TRIES; ; left--) {
    const response = await fetch(`${baseUrl}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
      body: JSON.stringify(body),
    });
    // The queue is for everybody; a full one says nothing of schemas.
    if (response.status !== 429 || left === 1) return response;
    await new Promise(resolve => setTimeout(resolve, 1_000));
  }
}

const validators = new Map<object, ValidateFunction>();

/** What ajv has against a text as a value of the schema. */
export function faultOf(schema: object, text: string): string | undefined {
  let validate = validators.get(schema);
  if (validate === undefined) {
    const ajv = new Ajv2020({ strict: false });
    formats.default(ajv);
    validate = ajv.compile(schema);
    validators.set(schema, validate);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `no JSON (${(error as Error).message}): ${text}`;
  }
  return validate(value) ? undefined : `${JSON.stringify(validate.errors?.[0])}: ${text}`;
}
