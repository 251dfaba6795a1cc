/** JobCalls: what a job's use of functions is to a batcher: how calls are told from its answer's text, and to what form the answer is held for them. */
import type { Job } from '../../shared/job.ts';
import type { CallStructure } from '../structured/calls/call-structure.ts';
import type { CallParserOptions } from './call-parser.ts';
import type { ToolSyntax } from './tool-format.ts';

type Asking = Pick<Job, 'prompt' | 'toolUse' | 'structure'>;

/** Undefined for a job whose answers call nothing. */
export function callsOf({ prompt, toolUse }: Asking, syntax: ToolSyntax): CallParserOptions | undefined {
  if (prompt.kind !== 'chat' || toolUse === undefined || prompt.tools === undefined || prompt.tools.length === 0) return undefined;
  const { names, choice } = toolUse;
  const all = prompt.tools.map(tool => tool.function.name);
  return { ...syntax, names: new Set(names ?? all), isForced: choice === 'required' };
}

/**
 * Undefined where calls are told from a free text. Arguments are held to a function's schema where something must be called, or the function is
 * strict; where only the number of calls or the text has a form, they are any object.
 */
export function callStructureOf({ prompt, toolUse, structure }: Asking, syntax: ToolSyntax): CallStructure | undefined {
  if (prompt.kind !== 'chat' || toolUse === undefined || prompt.tools === undefined || prompt.tools.length === 0) return undefined;
  const { choice, names, isParallel, strictNames = [], schemaParam } = toolUse;
  const isForced = choice === 'required';
  if (!isForced && isParallel && strictNames.length === 0 && structure === undefined) return undefined;
  const functions = prompt.tools.flatMap(({ function: { name, parameters } }, index) => {
    if (names !== undefined && !names.includes(name)) return [];
    const isHeld = isForced || strictNames.includes(name);
    return [{ name, param: schemaParam.replace('[]', `[${index}]`), schema: isHeld ? argumentsSchema(parameters) : { type: 'object' } }];
  });
  return {
    kind: 'calls',
    param: schemaParam.replace(/\[.*$/s, ''),
    ...syntax,
    functions,
    isForced,
    isParallel,
    ...(!isForced && structure !== undefined && { answer: structure }),
  };
}

/** Arguments are an object; a function that names none has none. */
function argumentsSchema(parameters: unknown): unknown {
  if (parameters === undefined) return { type: 'object', additionalProperties: false };
  const isObject = typeof parameters === 'object' && parameters !== null && !Array.isArray(parameters);
  return isObject && !('type' in parameters) ? { ...parameters, type: 'object' } : parameters;
}
