/**
 * CompletionRequest: the body of POST /v1/completions as the fields of a Job; only what passes here goes further.
 * Fields of OpenAI's contract whose function is missing here are refused by name; fields that nobody knows are left alone.
 */
import { z } from 'zod';
import { type Job, MAX_CHOICES, MAX_PROMPTS, type Prompt } from '../shared/job.ts';
import { checkGeneration, complainTo, GENERATION_FIELDS, given, samplingOf, serviceClassOf, stoppingOf } from './generation-fields.ts';
import type { JsonObject } from './json-body.ts';
import { promptForms, promptsSchema, textPrompt } from './prompt-forms.ts';
import { custom, refusal } from './refusal.ts';
import { SparseSchema } from './sparse-schema.ts';
import { checkStructure, GUIDED_FIELDS, ResponseFormat, structureOf } from './structure-fields.ts';

/** What the client asked for, before it has an id, a tenant and a shard. */
export interface CompletionRequest {
  job: Pick<Job, 'model' | 'prompt' | 'morePrompts' | 'sampling' | 'stopping' | 'structure' | 'choiceCount' | 'serviceClass' | 'echo'>;
  isStreamed: boolean;
  includeUsage: boolean;
  /** Of the job's choices of each prompt the client gets the best so many. */
  keptCount: number;
  wantsLogprobs: boolean;
  /** No tokenizer of ours makes more prompt tokens of all prompts together. */
  promptTokensBound: number;
  /** Only a batcher can tell whether the model takes it, its length aside: it names token ids or a form of the answer, or its prompt is empty. */
  isPromptUncertain: boolean;
}

const encoder = new TextEncoder();
const DEFAULT_MAX_TOKENS = 16;
/** Of all prompts together: what one request may hold of the batch. */
const MAX_TOTAL_CHOICES = 128;

const Prompts = promptsSchema({ field: 'prompt', most: MAX_PROMPTS, what: 'prompts', onNull: textPrompt('') }).meta(
  promptForms({
    ...{ most: MAX_PROMPTS, isNullable: true },
    ...{ description: 'One text, or several prompts; texts or token ids.', example: 'The capital of France is' },
  }),
);

export const CompletionBody = z
  .looseObject({
    ...GENERATION_FIELDS,
    ...GUIDED_FIELDS,
    response_format: ResponseFormat,
    prompt: Prompts,
    max_tokens: z.int().min(0).nullish().describe('16 when absent; 0 only together with `echo`.'),
    best_of: z.int().min(1).max(MAX_CHOICES).nullish().describe('So many are generated, and the `n` likeliest returned.'),
    echo: z.boolean().nullish().describe('The prompt in front of each of its choices.'),
    logprobs: z.int().min(0).max(5).nullish().describe('So many of the likeliest tokens are told at each place.'),
    suffix: z
      .string()
      .nullish()
      .refine(suffix => !suffix, {
        message: "'suffix' is not supported: the models served here continue a text and do not fill gaps in it.",
        ...custom('unsupported_parameter'),
      })
      .describe('Not supported; an empty one is let through.'),
  })
  .superRefine((body, context) => {
    const complain = complainTo(context, body);
    const maxTokens = body.max_tokens ?? DEFAULT_MAX_TOKENS;
    const choiceCount = body.best_of ?? body.n ?? 1;
    if (maxTokens === 0 && body.echo !== true) complain('max_tokens', "'max_tokens' may be 0 only when 'echo' is true.");
    if (choiceCount < (body.n ?? 1)) complain('best_of', `'best_of' is ${choiceCount}, fewer than the ${body.n} choices of 'n'.`);
    if (choiceCount > (body.n ?? 1) && body.stream === true) {
      complain('best_of', "'best_of' greater than 'n' cannot be streamed: which choices are best is known at the end.");
    }
    if (body.prompt.length * choiceCount > MAX_TOTAL_CHOICES) {
      complain(
        'prompt',
        `${body.prompt.length} prompts with ${choiceCount} choices each are more than the ${MAX_TOTAL_CHOICES} choices of one request.`,
      );
    }
    checkStructure(body, complain);
    checkGeneration(body, maxTokens, complain);
  });

const sparseBody = new SparseSchema(CompletionBody);

/** Throws the ApiError of the first fault. Whether the model exists is for whoever knows the batchers. */
export function parseCompletionRequest(body: JsonObject): CompletionRequest {
  // An absent field would not reach its schema.
  const parsed = sparseBody.safeParse({ ...body, prompt: body.prompt });
  if (!parsed.success) throw refusal(parsed.error);
  const request = parsed.data;
  const [prompt, ...morePrompts] = request.prompt as [Prompt, ...Prompt[]];
  const keptCount = request.n ?? 1;
  const choiceCount = request.best_of ?? keptCount;
  const wantsLogprobs = typeof request.logprobs === 'number';
  // The best are found by their log-probabilities.
  const topLogprobs = request.logprobs ?? (choiceCount > keptCount ? 0 : undefined);
  return {
    job: {
      model: request.model,
      prompt,
      ...given('morePrompts', morePrompts.length > 0 ? morePrompts : undefined),
      sampling: samplingOf(request, topLogprobs),
      stopping: stoppingOf(request, request.max_tokens ?? DEFAULT_MAX_TOKENS),
      ...given('structure', structureOf(request)),
      choiceCount,
      serviceClass: serviceClassOf(request.service_tier),
      ...given('echo', request.echo === true ? (wantsLogprobs ? ('scored' as const) : ('text' as const)) : undefined),
    },
    isStreamed: request.stream ?? false,
    includeUsage: request.stream_options?.include_usage ?? false,
    keptCount,
    wantsLogprobs,
    promptTokensBound: request.prompt.reduce((sum, one) => sum + tokensBound(one), 0),
    isPromptUncertain:
      Boolean(request.logit_bias) ||
      structureOf(request) !== undefined ||
      request.prompt.some(one => one.kind !== 'text' || one.text === ''),
  };
}

/** A token stands for at least one byte; a model may want one more in front. */
function tokensBound(prompt: Prompt): number {
  if (prompt.kind === 'tokens') return prompt.tokenIds.length;
  return prompt.kind === 'text' ? encoder.encode(prompt.text).byteLength + 1 : 0;
}
