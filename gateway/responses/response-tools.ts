/** ResponseTools: what the body of a response says of the functions that it may call (`tools`, `tool_choice`, `parallel_tool_calls`), and how replies repeat it. */
import { z } from 'zod';
import { type CallableTools, isNamed, MAX_TOOLS, type ToolWords } from '../callable-tools.ts';
import { custom } from '../refusal.ts';
import { Schema } from '../structure-fields.ts';
import { FunctionDescription, FunctionName } from '../tool-fields.ts';

const TOOL_WORDS: ToolWords = { name: 'tools[].name', schema: 'tools[].parameters' };

/** OpenAI has tools that run on its side; here nothing runs but the model. */
const ONLY_FUNCTIONS = "Only tools of the type 'function' are supported: this server has none of its own.";

const FunctionType = z
  .string()
  .refine(type => type === 'function', {
    message: ONLY_FUNCTIONS,
    ...custom('unsupported_parameter'),
  })
  .describe("`function`; OpenAI's own tools are refused.");

const FunctionTool = z.object({
  // First, so that a tool of another kind is refused for what it is, and not for the fields that it lacks.
  type: FunctionType,
  name: FunctionName,
  description: FunctionDescription.nullish(),
  parameters: Schema.nullish().describe('A JSON schema of an object; absent for a function without arguments.'),
  strict: z.boolean().nullish().describe('Its arguments are held to its schema, also when the model calls it of its own accord.'),
});

const NamedFunction = z.object({ type: z.literal('function'), name: z.string().max(256) });
const AllowedTools = z.object({
  type: z.literal('allowed_tools'),
  mode: z.enum(['auto', 'required']),
  tools: z.array(NamedFunction).min(1).max(MAX_TOOLS),
});
const OTHER_TYPES = [
  ...(['custom', 'mcp', 'file_search', 'web_search', 'web_search_preview', 'code_interpreter', 'image_generation'] as const),
  ...(['computer', 'computer_use', 'computer_use_preview', 'shell', 'local_shell', 'apply_patch'] as const),
];
const OtherTool = z
  .looseObject({
    type: z.enum(OTHER_TYPES).refine(() => false, { message: ONLY_FUNCTIONS, abort: true, ...custom('unsupported_parameter') }),
  })
  .transform((): z.output<typeof NamedFunction> => ({ type: 'function', name: '' }))
  .meta({ deprecated: true, description: 'Of the contract, and refused here.' });

const ToolChoice = z.union([z.enum(['none', 'auto', 'required']), z.discriminatedUnion('type', [NamedFunction, AllowedTools, OtherTool])], {
  error: "expected 'none', 'auto', 'required', a function or allowed tools",
});

export const TOOL_FIELDS = {
  tools: z.array(FunctionTool).max(MAX_TOOLS).nullish().describe('Functions that the answer may call.'),
  tool_choice: ToolChoice.nullish().describe(
    '`auto`, when absent: text, calls, or both; `required`: at least one call; a function: one call of it; `none`: no call.',
  ),
  parallel_tool_calls: z.boolean().nullish().describe('False: at most one call.'),
};

const ToolBody = z.object(TOOL_FIELDS);
type ToolBody = z.output<typeof ToolBody>;
type Choice = NonNullable<ToolBody['tool_choice']>;

export interface FunctionToolOut {
  type: 'function';
  name: string;
  description: string | null;
  parameters: Record<string, unknown> | null;
  strict: boolean | null;
}

export type ToolChoiceOut =
  | 'none'
  | 'auto'
  | 'required'
  | { type: 'function'; name: string }
  | { type: 'allowed_tools'; mode: 'auto' | 'required'; tools: { type: 'function'; name: string }[] };

export function callableTools({ tools, tool_choice, parallel_tool_calls }: ToolBody): CallableTools {
  const choice = tool_choice ?? 'auto';
  return {
    tools: tools ?? [],
    words: TOOL_WORDS,
    choice: typeof choice === 'string' ? choice : choice.type === 'function' ? 'required' : choice.mode,
    named: namedIn(choice),
    // What names one function means one call.
    isParallel: !isNamed(choice) && (parallel_tool_calls ?? true),
  };
}

export function toolsOut(tools: ToolBody['tools']): FunctionToolOut[] {
  return (tools ?? []).map(({ name, description = null, parameters = null, strict = null }) => {
    return { type: 'function', name, description, parameters, strict };
  });
}

export function toolChoiceOut(choice: ToolBody['tool_choice']): ToolChoiceOut {
  return choice ?? 'auto';
}

function namedIn(choice: Choice): CallableTools['named'] {
  if (typeof choice === 'string') return [];
  if (choice.type === 'function') return [{ name: choice.name, param: 'tool_choice.name' }];
  return choice.tools.map(({ name }, index) => ({ name, param: `tool_choice.tools[${index}].name` }));
}
