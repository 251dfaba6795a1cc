/**
 * GenerationFields: what the bodies of chat and plain completions have in common (sampling, stopping, streaming, class of service), as zod
 * fields and as the fields of a Job that they become. Null is as good as absent, as in OpenAI's contract.
 */
import { z } from 'zod';
import { MAX_CHOICES, type Sampling, type ServiceClass, type Stopping } from '../shared/job.ts';
import { custom } from './refusal.ts';

export const MAX_STOPS = 16;
const MAX_STOP_LENGTH = 1024;
const MAX_BIASED_TOKENS = 1024;
const DEFAULT_TEMPERATURE = 1;

/** Well-formed, so that what is counted, tokenized and sent back are the same bytes. */
export const Text = z.string().transform(text => text.toWellFormed());

export const StopText = z.string().min(1).max(MAX_STOP_LENGTH);

export const ServiceTier = z
  .enum(['auto', 'default', 'flex', 'priority', 'scale'])
  .nullish()
  .describe('Class in the queue: `priority` before `default` before `flex`.');

export const ModelName = z
  .string()
  .min(1)
  .max(256)
  .meta({ description: 'Name of a served model, or `default`.', examples: ['default'] });

export const GENERATION_FIELDS = {
  model: ModelName,

  temperature: z.number().min(0).max(2).nullish().describe('0 is greedy; 1 when absent.'),
  top_p: z.number().gt(0).max(1).nullish().describe('Nucleus sampling.'),
  presence_penalty: z.number().min(-2).max(2).nullish().describe('Once for each token that the answer holds already.'),
  frequency_penalty: z.number().min(-2).max(2).nullish().describe('As often as the answer holds the token already.'),
  logit_bias: z
    .record(z.string().regex(/^\d{1,9}$/, 'keys must be token ids'), z.number().min(-100).max(100))
    .refine(bias => Object.keys(bias).length <= MAX_BIASED_TOKENS, {
      message: `'logit_bias' may name at most ${MAX_BIASED_TOKENS} tokens.`,
    })
    .nullish()
    .describe('Added to the logits of token ids.'),
  seed: z.int().nullish().describe('The same request with the same seed gives the same bytes.'),

  // Extensions under the names that other servers gave them.
  top_k: z.int().min(-1).nullish().describe('An extension: only the so many likeliest tokens; 0 and -1 mean all.'),
  min_p: z.number().min(0).max(1).nullish().describe('An extension: only tokens at least this share as likely as the likeliest.'),
  typical_p: z.number().gt(0).max(1).nullish().describe('An extension: locally typical sampling.'),
  repetition_penalty: z.number().gt(0).max(10).nullish().describe('An extension: multiplicative, prompt included.'),
  min_tokens: z.int().min(0).nullish().describe('An extension: the answer does not end before.'),
  ignore_eos: z.boolean().nullish().describe("An extension: the model's own end tokens do not end the answer."),

  n: z.int().min(1).max(MAX_CHOICES).nullish().describe('Choices of each prompt.'),
  stop: z
    .union([StopText, z.array(StopText).max(MAX_STOPS)], { error: 'expected a string or an array of strings' })
    .nullish()
    .describe('Strings that end the answer; they are no part of it.'),

  stream: z.boolean().nullish().describe('The answer as server-sent events, while it is made.'),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish(), continuous_usage_stats: z.boolean().nullish() }).nullish(),
  service_tier: ServiceTier,

  // Of the contract, and without effect on the answer here.
  user: z.string().max(4096).nullish().describe('Taken, and without effect.'),
};

const GenerationBody = z.object(GENERATION_FIELDS);
export type GenerationBody = z.output<typeof GenerationBody>;

/** Adds an issue about one field. */
export type Complain = (param: string, message: string, code?: Parameters<typeof custom>[0]) => void;

export function complainTo(context: z.core.$RefinementCtx, body: Readonly<Record<string, unknown>>): Complain {
  return (param, message, code = 'invalid_value') =>
    context.addIssue({ code: 'custom', path: [param], message, input: body[param], ...custom(code) });
}

/** Faults that lie between fields. */
export function checkGeneration(body: GenerationBody, maxTokens: number | undefined, complain: Complain): void {
  if (body.stream_options && body.stream !== true) {
    complain('stream_options', "'stream_options' may be given only when 'stream' is true.");
  }
  if (maxTokens !== undefined && (body.min_tokens ?? 0) > maxTokens) {
    complain('min_tokens', `'min_tokens' is ${body.min_tokens}, more than the ${maxTokens} tokens that may be generated.`);
  }
}

export function samplingOf(request: GenerationBody, topLogprobs: number | undefined): Sampling {
  const topK = request.top_k ?? 0;
  return {
    temperature: request.temperature ?? DEFAULT_TEMPERATURE,
    ...given('topP', request.top_p),
    // 0 and -1 are how others write "all".
    ...given('topK', topK > 0 ? topK : undefined),
    ...given('minP', request.min_p),
    ...given('typicalP', request.typical_p),
    ...given('presencePenalty', request.presence_penalty),
    ...given('frequencyPenalty', request.frequency_penalty),
    ...given('repetitionPenalty', request.repetition_penalty),
    ...given('logitBias', request.logit_bias),
    ...given('seed', request.seed),
    ...given('topLogprobs', topLogprobs),
  };
}

export function stoppingOf(request: GenerationBody, maxTokens: number | undefined): Stopping {
  const stop = typeof request.stop === 'string' ? [request.stop] : (request.stop ?? []);
  return {
    ...given('maxTokens', maxTokens),
    ...given('minTokens', request.min_tokens),
    ...given('stop', stop.length > 0 ? stop : undefined),
    ...given('ignoreEos', request.ignore_eos),
  };
}

export function serviceClassOf(tier: GenerationBody['service_tier']): ServiceClass {
  return tier === 'priority' || tier === 'flex' ? tier : 'default';
}

/** `exactOptionalPropertyTypes` wants absent fields absent, and a job on the queue is the shorter for it. */
export function given<K extends string, V>(key: K, value: V | null | undefined): { [P in K]?: V } {
  return (value === undefined || value === null ? {} : { [key]: value }) as { [P in K]?: V };
}

/** Of the contract, and not here: said so, since to ignore it would change what the answer means. */
export function unsupported(field: string) {
  return z
    .unknown()
    .optional()
    .refine(value => value === undefined || value === null, {
      message: `'${field}' is not supported.`,
      ...custom('unsupported_parameter'),
    })
    .meta({ type: 'null', description: 'Of the contract, and not supported here.' });
}
