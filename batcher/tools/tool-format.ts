/** ToolFormat: how models write calls of functions: the formats that are known, what marks them, and which one a model's chat template uses. */

export const TOOL_FORMATS = ['hermes', 'llama3', 'mistral'] as const;
export type ToolFormat = (typeof TOOL_FORMATS)[number];

export interface CallMarkup {
  /** What a call begins with. Its first character comes once in it. */
  opener: string;
  /** What comes behind each call. */
  closer?: string;
  /** Under which a call has its arguments. */
  argumentsKey: 'arguments' | 'parameters';
  /** An answer that begins with an object may be a call, without its opener. */
  isBare: boolean;
  /** Behind the opener stands a list. */
  isList: boolean;
  /** Behind the opener may stand a function's name, and behind that its arguments. */
  mayBeNamed?: boolean;
  /** Between two calls of one opener, besides white space. */
  separator?: ',' | ';';
}

/**
 * hermes (Hermes, Qwen): `<tool_call>\n{"name": …, "arguments": …}\n</tool_call>`, once for each call.
 * llama3: `{"name": …, "parameters": …}`, alone or behind `<|python_tag|>`; several with `;` between them.
 * mistral: `[TOOL_CALLS] [{"name": …, "arguments": …}, …]`; newer models `[TOOL_CALLS]name[ARGS]{…}`, once for each call.
 */
export const CALL_MARKUP: Readonly<Record<ToolFormat, CallMarkup>> = {
  hermes: { opener: '<tool_call>', closer: '</tool_call>', argumentsKey: 'arguments', isBare: false, isList: false },
  llama3: { opener: '<|python_tag|>', argumentsKey: 'parameters', isBare: true, isList: false, separator: ';' },
  mistral: { opener: '[TOOL_CALLS]', argumentsKey: 'arguments', isBare: false, isList: true, mayBeNamed: true, separator: ',' },
};

/** What a model's calls look like to a batcher. */
export interface ToolSyntax {
  format: ToolFormat;
  /** The opener's, where it is a control token, which has no text. */
  openerTokenId?: number | undefined;
}

/** Undefined where a template has none of the marks. The opener of llama3 is no word that the others use, nor the other way round. */
export function formatOfTemplate(template: string): ToolFormat | undefined {
  if (template.includes(CALL_MARKUP.mistral.opener)) return 'mistral';
  if (template.includes(CALL_MARKUP.hermes.opener)) return 'hermes';
  if (template.includes(CALL_MARKUP.llama3.opener) || /"name":[^{}]*"parameters":/.test(template)) return 'llama3';
  return undefined;
}

/** Calls as a model of this format would write them: for a conversation whose template has no word for them. */
export function writtenCalls(format: ToolFormat, calls: readonly { name: string; arguments: unknown }[]): string {
  const { opener, closer, argumentsKey, isList, separator } = CALL_MARKUP[format];
  const objects = calls.map(call => JSON.stringify({ name: call.name, [argumentsKey]: call.arguments }));
  if (closer !== undefined) return objects.map(object => `${opener}\n${object}\n${closer}`).join('\n');
  return isList ? `${opener} [${objects.join(`${separator} `)}]` : objects.join(`${separator} `);
}
