/** MessageTools: what the body of a message says of the functions that its answer may call, in Anthropic's words (`tools`, `tool_choice`). */
import { z } from 'zod';
import { type CallableTools, MAX_TOOLS, type ToolWords } from '../callable-tools.ts';
import { custom } from '../refusal.ts';
import { Schema } from '../structure-fields.ts';
import { FunctionDescription } from '../tool-fields.ts';

const TOOL_WORDS: ToolWords = { name: 'tools[].name', schema: 'tools[].input_schema' };

const Tool = z.object({
  // First, so that a tool of the provider's own is refused for what it is, and not for the fields that it lacks.
  type: z
    .string()
    .nullish()
    .refine(type => type === undefined || type === null || type === 'custom', {
      message: "Only tools of one's own, of the type 'custom', are supported.",
      ...custom('unsupported_parameter'),
    })
    .describe('`custom`, when absent; the tools that Anthropic itself has are refused.'),
  name: z.string().regex(/^[a-zA-Z0-9_-]{1,128}$/, "a name has 1 to 128 letters, digits, '_' and '-'"),
  description: FunctionDescription.nullish(),
  input_schema: Schema.describe('A JSON schema of an object.'),
  strict: z.boolean().nullish().describe('Its input is held to its schema, also when the model calls it of its own accord.'),
});

const disable_parallel_tool_use = z.boolean().nullish().describe('True: at most one call.');
const ToolChoice = z.discriminatedUnion('type', [
  z.object({ type: z.literal('auto'), disable_parallel_tool_use }),
  z.object({ type: z.literal('any'), disable_parallel_tool_use }),
  z.object({ type: z.literal('tool'), name: z.string().max(256), disable_parallel_tool_use }),
  z.object({ type: z.literal('none') }),
]);

export const TOOL_FIELDS = {
  tools: z.array(Tool).max(MAX_TOOLS).nullish().describe('Functions that the answer may call.'),
  tool_choice: ToolChoice.nullish().describe(
    '`auto`, when absent: text, calls, or both; `any`: at least one call; `tool`: one call of it; `none`: no call.',
  ),
};

const ToolBody = z.object(TOOL_FIELDS);

export function callableTools({ tools, tool_choice }: z.output<typeof ToolBody>): CallableTools {
  const choice = tool_choice ?? { type: 'auto' as const };
  const isNamed = choice.type === 'tool';
  return {
    tools: (tools ?? []).map(({ name, description, input_schema, strict }) => ({ name, description, parameters: input_schema, strict })),
    words: TOOL_WORDS,
    choice: isNamed || choice.type === 'any' ? 'required' : choice.type,
    named: isNamed ? [{ name: choice.name, param: 'tool_choice.name' }] : [],
    // What names one tool means one call.
    isParallel: !isNamed && !(choice.type !== 'none' && choice.disable_parallel_tool_use),
  };
}
