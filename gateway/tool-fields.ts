/**
 * ToolFields: what a body says of the functions that its answer may call (`tools`, `tool_choice`, `parallel_tool_calls`), as zod fields and as what a
 * job has of them. Here names, forms and sizes are checked; what a function's schema says is for the batcher, which refuses before any reply.
 */
import { z } from 'zod';
import type { Tool, ToolUse } from '../shared/job.ts';
import { type Complain, given, Text } from './generation-fields.ts';
import { custom } from './refusal.ts';
import { Schema } from './structure-fields.ts';

const MAX_TOOLS = 128;
/** Of all tools together, as JSON. */
const MAX_CHARACTERS = 262_144;
const MAX_DESCRIPTION_CHARACTERS = 16_384;
/** Of a tool's schema in a body. */
const SCHEMA_PARAM = 'tools[].function.parameters';

const FunctionName = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, "a name has 1 to 64 letters, digits, '_' and '-'");

const FunctionTool = z.object({
  type: z.literal('function'),
  function: z.object({
    name: FunctionName,
    description: Text.refine(text => text.length <= MAX_DESCRIPTION_CHARACTERS, {
      message: `A description may have at most ${MAX_DESCRIPTION_CHARACTERS} characters.`,
    }).nullish(),
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

/** Faults that lie between tools and other fields; `guidedField` is one that gives the whole answer a form. */
export function checkTools(body: ToolBody, guidedField: string | undefined, complain: Complain): void {
  const tools = body.tools ?? [];
  const choice = body.tool_choice ?? 'auto';
  checkToolList(tools, complain);
  const known = new Set(tools.map(tool => tool.function.name));
  if (tools.length === 0) {
    if (choice !== 'auto' && choice !== 'none') complain('tool_choice', "'tool_choice' may call for tools only when 'tools' has some.");
    return;
  }
  if (choice === 'none') return;
  if (guidedField !== undefined) {
    complain(guidedField, `'${guidedField}' and 'tools' cannot be given together: a call has a form of its own.`);
  }
  for (const { name, param } of namedIn(choice)) {
    if (!known.has(name)) complain(param, `Invalid value for '${param}': there is no tool of the name '${name.slice(0, 64)}'.`);
  }
}

/** Of tools by themselves. */
export function checkToolList(tools: ToolsOut, complain: Complain): void {
  const seen = new Set<string>();
  for (const [index, { function: one }] of tools.entries()) {
    const param = `tools[${index}].function`;
    if (seen.has(one.name)) complain(`${param}.name`, `Invalid value for '${param}.name': there are two tools of the name '${one.name}'.`);
    seen.add(one.name);
    const type = one.parameters?.type;
    if (type === undefined || type === 'object') continue;
    complain(`${param}.parameters.type`, `Invalid value for '${param}.parameters.type': arguments are an object.`);
  }
  if (JSON.stringify(tools).length > MAX_CHARACTERS) complain('tools', `Tools may have at most ${MAX_CHARACTERS} characters together.`);
}

/** For the prompt. */
export function promptTools(tools: ToolsOut | null | undefined): Tool[] | undefined {
  if (!tools || tools.length === 0) return undefined;
  return tools.map(({ function: { name, description, parameters } }) => ({
    type: 'function',
    function: { name, ...given('description', description), ...given('parameters', parameters) },
  }));
}

/** Undefined where nothing may be called; then the prompt has no tools either, so that the model is not led to it. */
export function toolUseOf(body: ToolBody): ToolUse | undefined {
  const { tools, tool_choice } = body;
  const choice = tool_choice ?? 'auto';
  if (!tools || tools.length === 0 || choice === 'none') return undefined;
  const strictNames = tools.flatMap(tool => (tool.function.strict ? [tool.function.name] : []));
  const names = [...new Set(namedIn(choice).map(({ name }) => name))];
  const isNamed = typeof choice === 'object' && choice.type === 'function';
  const mode = typeof choice === 'string' ? choice : choice.type === 'function' ? 'required' : choice.allowed_tools.mode;
  return {
    choice: mode,
    ...(names.length > 0 && { names }),
    // What names one function means one call.
    isParallel: !isNamed && (body.parallel_tool_calls ?? true),
    ...(strictNames.length > 0 && { strictNames }),
    schemaParam: SCHEMA_PARAM,
  };
}

function namedIn(choice: NonNullable<ToolBody['tool_choice']>): { name: string; param: string }[] {
  if (typeof choice === 'string') return [];
  if (choice.type === 'function') return [{ name: choice.function.name, param: 'tool_choice.function.name' }];
  return choice.allowed_tools.tools.map((tool, index) => ({
    name: tool.function.name,
    param: `tool_choice.allowed_tools.tools[${index}].function.name`,
  }));
}
