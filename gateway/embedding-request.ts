/**
 * EmbeddingRequest: the body of POST /v1/embeddings as the fields of a Job; only what passes here goes further. Whether the texts fit the
 * model is for a batcher, which has its tokenizer.
 */
import { z } from 'zod';
import { type Job, MAX_INPUTS, type Prompt } from '../shared/job.ts';
import { given, ModelName, ServiceTier, serviceClassOf } from './generation-fields.ts';
import type { JsonObject } from './json-body.ts';
import { promptForms, promptsSchema } from './prompt-forms.ts';
import { refusal } from './refusal.ts';

export type EncodingFormat = 'float' | 'base64';

export interface EmbeddingRequest {
  job: Pick<Job, 'model' | 'task' | 'prompt' | 'morePrompts' | 'sampling' | 'stopping' | 'choiceCount' | 'serviceClass'>;
  encodingFormat: EncodingFormat;
  /** No tokenizer of ours makes more prompt tokens of all texts together. */
  promptTokensBound: number;
}

/** Of which a batcher has `truncate_prompt_tokens` mean the model's own bound. */
const ALL_THAT_FITS = -1;
const MAX_TOKENS = 1 << 20;
const MAX_DIMENSIONS = 65_536;
/** What stands around a text. */
const AROUND_TOKENS = 2;

export const EmbeddingBody = z.looseObject({
  model: ModelName,
  input: promptsSchema({ field: 'input', most: MAX_INPUTS, what: 'inputs', isEmptyRefused: true }).meta(
    promptForms({ most: MAX_INPUTS, isNullable: false, description: 'One text, or several; texts or token ids.', example: 'A red car' }),
  ),
  encoding_format: z
    .enum(['float', 'base64'])
    .nullish()
    .describe('`base64` is that of little-endian float32 numbers; `float` when absent.'),
  dimensions: z.int().min(1).max(MAX_DIMENSIONS).nullish().describe("The vectors are cut to so many numbers; at most the model's own."),
  truncate_prompt_tokens: z
    .int()
    .min(ALL_THAT_FITS)
    .max(MAX_TOKENS)
    .refine(count => count !== 0, { message: "'truncate_prompt_tokens' must be -1 or at least 1." })
    .nullish()
    .describe('An extension: longer texts are cut to so many tokens instead of refused; -1 is as many as fit the model.'),
  user: z.string().max(4096).nullish().describe('Taken, and without effect.'),
  service_tier: ServiceTier,
});

/** Throws the ApiError of the first fault. */
export function parseEmbeddingRequest(body: JsonObject): EmbeddingRequest {
  // An absent field would not reach its schema.
  const parsed = EmbeddingBody.safeParse({ ...body, input: body.input }, { reportInput: true });
  if (!parsed.success) throw refusal(parsed.error);
  const request = parsed.data;
  const [prompt, ...morePrompts] = request.input as [Prompt, ...Prompt[]];
  const truncate = request.truncate_prompt_tokens;
  return {
    job: {
      model: request.model,
      task: {
        kind: 'embed',
        ...given('dimensions', request.dimensions),
        ...given('truncateTokens', truncate === ALL_THAT_FITS ? MAX_TOKENS : truncate),
      },
      prompt,
      ...given('morePrompts', morePrompts.length > 0 ? morePrompts : undefined),
      sampling: { temperature: 0 },
      stopping: { maxTokens: 0 },
      choiceCount: 1,
      serviceClass: serviceClassOf(request.service_tier),
    },
    encodingFormat: request.encoding_format ?? 'float',
    promptTokensBound: request.input.reduce((sum, one) => sum + tokensBound(one), 0),
  };
}

function tokensBound(prompt: Prompt): number {
  if (prompt.kind === 'tokens') return prompt.tokenIds.length;
  return prompt.kind === 'text' ? new TextEncoder().encode(prompt.text).byteLength + AROUND_TOKENS : 0;
}
