/**
 * CallableTools: the functions that an answer may call, in whichever call's words a body has them: what is wrong with them, and what a job has of
 * them. Here names, forms and sizes are checked; what a function's schema says is for the batcher, which refuses before any reply.
 */
import type { Tool, ToolUse } from '../shared/job.ts';
import { type Complain, given } from './generation-fields.ts';

export const MAX_TOOLS = 128;
export const MAX_DESCRIPTION_CHARACTERS = 16_384;
/** Of all tools together, as JSON. */
const MAX_CHARACTERS = 262_144;

export interface CallableTool {
  name: string;
  description?: string | null | undefined;
  /** A JSON schema of an object. */
  parameters?: Record<string, unknown> | null | undefined;
  strict?: boolean | null | undefined;
}

/** The fields of a tool in a body; `[]` stands for its index. */
export interface ToolWords {
  name: string;
  schema: string;
}

export interface CallableTools {
  tools: readonly CallableTool[];
  words: ToolWords;
  choice: ToolUse['choice'] | 'none';
  /** Those that may be called, each with the field that names it; none for all. */
  named: readonly { name: string; param: string }[];
  isParallel: boolean;
}

/** Whether a `tool_choice` of OpenAI's names the one function to call. */
export function isNamed(choice: string | { type: string } | null | undefined): boolean {
  return typeof choice === 'object' && choice?.type === 'function';
}

/** Faults that lie between tools and other fields; `guidedField` is one that gives the whole answer a form. */
export function checkTools({ tools, words, choice, named }: CallableTools, guidedField: string | undefined, complain: Complain): void {
  checkToolList(tools, words, complain);
  if (tools.length === 0) {
    if (choice === 'required' || named.length > 0) complain('tool_choice', "'tool_choice' may call for tools only when 'tools' has some.");
    return;
  }
  if (choice === 'none') return;
  if (guidedField !== undefined) {
    complain(guidedField, `'${guidedField}' and 'tools' cannot be given together: a call has a form of its own.`);
  }
  const known = new Set(tools.map(tool => tool.name));
  for (const { name, param } of named) {
    if (!known.has(name)) complain(param, `Invalid value for '${param}': there is no tool of the name '${name.slice(0, 64)}'.`);
  }
}

/** Of tools by themselves. */
export function checkToolList(tools: readonly CallableTool[], words: ToolWords, complain: Complain): void {
  const seen = new Set<string>();
  for (const [index, { name, parameters }] of tools.entries()) {
    const place = (word: string) => word.replace('[]', `[${index}]`);
    if (seen.has(name)) {
      complain(place(words.name), `Invalid value for '${place(words.name)}': there are two tools of the name '${name}'.`);
    }
    seen.add(name);
    const type = parameters?.type;
    if (type === undefined || type === 'object') continue;
    const param = `${place(words.schema)}.type`;
    complain(param, `Invalid value for '${param}': arguments are an object.`);
  }
  if (JSON.stringify(tools).length > MAX_CHARACTERS) complain('tools', `Tools may have at most ${MAX_CHARACTERS} characters together.`);
}

/** For the prompt. */
export function promptTools(tools: readonly CallableTool[]): Tool[] | undefined {
  if (tools.length === 0) return undefined;
  return tools.map(({ name, description, parameters }) => ({
    type: 'function',
    function: { name, ...given('description', description), ...given('parameters', parameters) },
  }));
}

/** What a job has of them: nothing where nothing may be called; then the prompt has no tools either, so that the model is not led to it. */
export function jobTools({ tools, words, choice, named, isParallel }: CallableTools): { tools?: Tool[]; toolUse?: ToolUse } {
  const prompted = promptTools(tools);
  if (prompted === undefined || choice === 'none') return {};
  const strictNames = tools.flatMap(({ name, strict }) => (strict ? [name] : []));
  const names = [...new Set(named.map(({ name }) => name))];
  return {
    tools: prompted,
    toolUse: {
      choice,
      ...(names.length > 0 && { names }),
      isParallel,
      ...(strictNames.length > 0 && { strictNames }),
      schemaParam: words.schema,
    },
  };
}
