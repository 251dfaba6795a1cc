/** ToolFields: what the body of a chat completion says of the functions that its answer may call (`tools`, `tool_choice`, `parallel_tool_calls`). */
import { z } from 'zod';
import { type CallableTool, type CallableTools, isNamed, MAX_DESCRIPTION_CHARACTERS, MAX_TOOLS, type ToolWords } from './callable-tools.ts';
import { Text } from './generation-fields.ts';
import { custom } from './refusal.ts';
import { Schema } from './structure-fields.ts';

export const TOOL_WORDS: ToolWords = { name: 'tools[].function.name', schema: 'tools[].function.parameters' };

export const FunctionName = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, "a name has 1 to 64 letters, digits, '_' and '-'");
export const FunctionDescription = Text.refine(text => text.length <= MAX_DESCRIPTION_CHARACTERS, {
  message: `A description may have at most ${MAX_DESCRIPTION_CHARACTERS} characters.`,
});

const FunctionTool = z.object({
  type: z.literal('function'),
  function: z.object({
    name: FunctionName,
    description: FunctionDescription.nullish(),
    parameters: Schema.nullish().describe('A JSON schema of an object; absent for a function without arguments.'),
    strict: z.boolean().nullish().describe('Its arguments are held to its schema, also when the model calls it of its own accord.'),
  }),
});

const CustomTool = z
  .looseObject({ type: z.literal('custom') })
  .refine(() => false, { message: "Only tools of the type 'function' are supported.", abort: true, ...custom('unsupported_parameter') })
  .transform((): z.output<typeof FunctionTool> => ({ type: 'function', function: { name: '' } }))
  .meta({ deprecated: true, description: 'Of the contract, and refused here.' });

export const Tools = z.array(z.discriminatedUnion('type', [FunctionTool, CustomTool])).max(MAX_TOOLS);

const NamedFunction = z.object({ type: z.literal('function'), function: z.object({ name: z.string().max(256) }) });
const AllowedTools = z.object({
  type: z.literal('allowed_tools'),
  allowed_tools: z.object({ mode: z.enum(['auto', 'required']), tools: z.array(NamedFunction).min(1).max(MAX_TOOLS) }),
});

export const TOOL_FIELDS = {
  tools: Tools.nullish().describe('Functions that the answer may call.'),
  tool_choice: z
    .union([z.enum(['none', 'auto', 'required']), z.discriminatedUnion('type', [NamedFunction, AllowedTools])], {
      error: "expected 'none', 'auto', 'required', a function or allowed tools",
    })
    .nullish()
    .describe('`auto`, when absent: text, calls, or both; `required`: at least one call; a function: one call of it; `none`: no call.'),
  parallel_tool_calls: z.boolean().nullish().describe('False: at most one call.'),
};

const ToolBody = z.object(TOOL_FIELDS);
type ToolBody = z.output<typeof ToolBody>;
type ToolsOut = z.output<typeof Tools>;

export function callableTools({ tools, tool_choice, parallel_tool_calls }: ToolBody): CallableTools {
  const choice = tool_choice ?? 'auto';
  const mode = typeof choice === 'string' ? choice : choice.type === 'function' ? 'required' : choice.allowed_tools.mode;
  return {
    tools: toolList(tools ?? []),
    words: TOOL_WORDS,
    choice: mode,
    named: namedIn(choice),
    // What names one function means one call.
    isParallel: !isNamed(choice) && (parallel_tool_calls ?? true),
  };
}

export function toolList(tools: ToolsOut): CallableTool[] {
  return tools.map(tool => tool.function);
}

function namedIn(choice: NonNullable<ToolBody['tool_choice']>): CallableTools['named'] {
  if (typeof choice === 'string') return [];
  if (choice.type === 'function') return [{ name: choice.function.name, param: 'tool_choice.function.name' }];
  return choice.allowed_tools.tools.map((tool, index) => ({
    name: tool.function.name,
    param: `tool_choice.allowed_tools.tools[${index}].function.name`,
  }));
}
