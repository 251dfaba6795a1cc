/**
 * Job: one validated request, as the gateway puts it on the queue and a batcher takes it off.
 * Everything past the edge accepts only this type; unknown fields are kept, so that two versions can run side by side.
 */
import { z } from 'zod';

export const JOB_VERSION = 1;

const TextPart = z.object({ type: z.literal('text'), text: z.string() });
const ToolCall = z.object({
  id: z.string(),
  type: z.literal('function'),
  function: z.object({ name: z.string(), arguments: z.string() }),
});

/** One turn of a conversation, its content already joined to one string. */
export const ChatMessage = z.object({
  role: z.enum(['system', 'user', 'assistant', 'tool']),
  content: z.string().nullable(),
  name: z.string().optional(),
  /** Of an assistant: what it said to itself before. Only templates that have a use for it tell it again. */
  reasoning: z.string().optional(),
  toolCalls: z.array(ToolCall).optional(),
  toolCallId: z.string().optional(),
});
export type ChatMessage = z.infer<typeof ChatMessage>;
export { TextPart };

/** A function that the answer may call, in the form that chat templates take; `parameters` is the JSON schema of its arguments. */
export const Tool = z.object({
  type: z.literal('function'),
  function: z.object({ name: z.string().min(1), description: z.string().optional(), parameters: z.unknown().optional() }),
});
export type Tool = z.infer<typeof Tool>;

/** What is to be continued: a conversation (rendered by the model's chat template), plain text, or token ids. */
export const Prompt = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('chat'),
    messages: z.array(ChatMessage).min(1),
    tools: z.array(Tool).optional(),
    /** For the chat template, besides. */
    templateValues: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])).optional(),
  }),
  z.object({ kind: z.literal('text'), text: z.string() }),
  z.object({ kind: z.literal('tokens'), tokenIds: z.array(z.int().min(0)) }),
]);
export type Prompt = z.infer<typeof Prompt>;

/** How the next token is chosen. Absent means off; temperature 0 is greedy. */
export const Sampling = z.object({
  temperature: z.number().min(0).max(2),
  topP: z.number().gt(0).max(1).optional(),
  topK: z.int().min(1).optional(),
  minP: z.number().min(0).max(1).optional(),
  typicalP: z.number().gt(0).max(1).optional(),
  presencePenalty: z.number().min(-2).max(2).optional(),
  frequencyPenalty: z.number().min(-2).max(2).optional(),
  repetitionPenalty: z.number().gt(0).max(10).optional(),
  /** Added to the logit of a token id. */
  logitBias: z.record(z.string(), z.number().min(-100).max(100)).optional(),
  /** With a seed the same request gives the same bytes. */
  seed: z.int().optional(),
  /** Number of most likely alternatives reported with each token; 0 reports the chosen token only; absent reports nothing. */
  topLogprobs: z.int().min(0).max(20).optional(),
});
export type Sampling = z.infer<typeof Sampling>;

export const SERVICE_CLASSES = ['priority', 'default', 'flex'] as const;
export type ServiceClass = (typeof SERVICE_CLASSES)[number];

/** When a choice ends, besides the model's own end tokens. */
export const Stopping = z.object({
  /** Upper bound on generated tokens; absent means as many as the context holds. 0 computes the prompt only. */
  maxTokens: z.int().min(0).optional(),
  minTokens: z.int().min(0).optional(),
  /** Of them as reasoning, where the model reasons apart from its answer: past so many its end comes. */
  maxReasoningTokens: z.int().min(1).optional(),
  /** Strings that end the text; they are not part of it. */
  stop: z.array(z.string().min(1)).max(16).optional(),
  ignoreEos: z.boolean().optional(),
});
export type Stopping = z.infer<typeof Stopping>;

/** What is asked of the prompts; a job without one asks for their continuation. */
export const Task = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('tokenize'),
    addSpecialTokens: z.boolean(),
    /** Of a conversation: the prompt ends where the assistant's turn begins. */
    addGenerationPrompt: z.boolean(),
    /** Tell each token's text too. */
    tellTexts: z.boolean(),
  }),
  z.object({ kind: z.literal('detokenize') }),
  z.object({
    kind: z.literal('embed'),
    /** The vectors are cut to so many numbers. */
    dimensions: z.int().min(1).optional(),
    /** Longer prompts are cut to so many tokens, instead of refused. */
    truncateTokens: z.int().min(1).optional(),
  }),
]);
export type Task = z.infer<typeof Task>;

export const TASK_KINDS = ['generate', 'embed', 'tokenize', 'detokenize'] as const;
export type TaskKind = (typeof TASK_KINDS)[number];

/** What an answer must be as a whole, besides being the model's; `param` is the field that asked for it. */
export const Structure = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('json'), param: z.string() }),
  z.object({ kind: z.literal('schema'), param: z.string(), schema: z.unknown() }),
  z.object({ kind: z.literal('regex'), param: z.string(), pattern: z.string() }),
  z.object({ kind: z.literal('choice'), param: z.string(), choices: z.array(z.string()).min(1) }),
  /** EBNF. */
  z.object({ kind: z.literal('grammar'), param: z.string(), grammar: z.string() }),
]);
export type Structure = z.infer<typeof Structure>;

/** How an answer may call the functions of its prompt; of a job without it no calls are looked for. */
export const ToolUse = z.object({
  /** `auto`: text, calls, or both; `required`: calls and nothing else. */
  choice: z.enum(['auto', 'required']),
  /** Those that may be called; absent for all. */
  names: z.array(z.string()).min(1).optional(),
  /** More than one call. */
  isParallel: z.boolean(),
  /** Those whose arguments are held to their schemas also where nothing has to be called. */
  strictNames: z.array(z.string()).optional(),
  /** Where the client's body has the schema of a function: `[]` stands for the function's index. */
  schemaParam: z.string(),
});
export type ToolUse = z.infer<typeof ToolUse>;

/** Prompts of one request that asks for their continuation. */
export const MAX_PROMPTS = 64;
/** Prompts of one request, whatever it asks for. */
export const MAX_INPUTS = 2048;
/** Choices of each prompt. */
export const MAX_CHOICES = 8;

export const Job = z.looseObject({
  version: z.int().min(1),
  id: z.string().min(1).max(128),
  model: z.string().min(1),
  tenant: z.string().min(1).max(64),
  /** The broker shard whose `out` stream gets the events. */
  shard: z.string().min(1),
  task: Task.optional(),
  prompt: Prompt,
  /** Further prompts of the same request, each with choices of its own (completions and embeddings only). */
  morePrompts: z
    .array(Prompt)
    .max(MAX_INPUTS - 1)
    .optional(),
  sampling: Sampling,
  stopping: Stopping,
  /** Of its text; calls of functions have their own. */
  structure: Structure.optional(),
  /** Absent also where the prompt's tools are only to be seen. */
  toolUse: ToolUse.optional(),
  /** Number of independent choices of each prompt, which share its prefill. Choice i of prompt p has the index p * choiceCount + i. */
  choiceCount: z.int().min(1).max(MAX_CHOICES),
  /** Tell the prompt too: its text, or its text with the log-probability of each of its tokens (completions only). */
  echo: z.enum(['text', 'scored']).optional(),
  /** Prompt look-up speculation also for a seeded request. */
  speculation: z.boolean().optional(),
  serviceClass: z.enum(SERVICE_CLASSES),
  /** Wanted time to first token, from submittedAt. */
  ttftSloMs: z.number().positive().optional(),
  /** Of a job that Redis had lost and that was put on its queue anew: attempts that its new place there does not count. */
  earlierAttempts: z.int().min(0).optional(),
  /** Epoch milliseconds at the edge. */
  submittedAt: z.number(),
  /** W3C trace context: the gateway's span, and what its caller had said to go with it. */
  traceparent: z.string().optional(),
  tracestate: z.string().optional(),
});
export type Job = z.infer<typeof Job>;

export function promptsOf(job: Pick<Job, 'prompt' | 'morePrompts'>): readonly Prompt[] {
  return [job.prompt, ...(job.morePrompts ?? [])];
}

export function taskOf(job: Pick<Job, 'task'>): TaskKind {
  return job.task?.kind ?? 'generate';
}

/** Answered from the vocabulary alone: it needs no row and no step, so it waits in a queue of its own. */
export function isQuick(job: Pick<Job, 'task'>): boolean {
  return job.task?.kind === 'tokenize' || job.task?.kind === 'detokenize';
}
