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
  /** Behind the opener may stand a function's name, and behind that its arguments: see NamedMarks. */
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

/** Of newer models of Mistral: what stands behind the name, and before an id that some have there. */
export const ARGUMENTS_MARK = '[ARGS]';
export const ID_MARK = '[CALL_ID]';
/** Of such an id: letters and digits. */
export const CALL_ID_LENGTH = 9;

/** What a model's calls look like to a batcher. */
export interface ToolSyntax {
  format: ToolFormat;
  /** The opener's, where it is a control token, which has no text. */
  openerTokenId?: number | undefined;
  /** The model writes calls by name. */
  named?: NamedMarks | undefined;
}

/** `name[ARGS]{…}` or `name[CALL_ID]id[ARGS]{…}`; a mark that is a control token is known by its number. */
export interface NamedMarks {
  hasIds: boolean;
  argumentsTokenId?: number | undefined;
  idTokenId?: number | undefined;
}

/** Undefined where a template has none of the marks. The opener of llama3 is no word that the others use, nor the other way round. */
export function formatOfTemplate(template: string): ToolFormat | undefined {
  if (template.includes(CALL_MARKUP.mistral.opener)) return 'mistral';
  if (template.includes(CALL_MARKUP.hermes.opener)) return 'hermes';
  if (template.includes(CALL_MARKUP.llama3.opener) || /"name":[^{}]*"parameters":/.test(template)) return 'llama3';
  return undefined;
}

/** How the model of this template writes calls; `format` goes before what the template tells. `controlTokenId` is of a mark, where it is a control token. */
export function syntaxOf(format: ToolFormat, template: string, controlTokenId: (mark: string) => number | undefined): ToolSyntax {
  const { opener, mayBeNamed = false } = CALL_MARKUP[format];
  const openerTokenId = controlTokenId(opener);
  return {
    format,
    ...(openerTokenId !== undefined && { openerTokenId }),
    ...(mayBeNamed && template.includes(ARGUMENTS_MARK) && { named: namedMarks(template, controlTokenId) }),
  };
}

function namedMarks(template: string, controlTokenId: (mark: string) => number | undefined): NamedMarks {
  const hasIds = template.includes(ID_MARK);
  const argumentsTokenId = controlTokenId(ARGUMENTS_MARK);
  const idTokenId = hasIds ? controlTokenId(ID_MARK) : undefined;
  return { hasIds, ...(argumentsTokenId !== undefined && { argumentsTokenId }), ...(idTokenId !== undefined && { idTokenId }) };
}

export interface WrittenCall {
  id: string;
  name: string;
  arguments: unknown;
}

/** Calls as a model of this syntax would write them: for a conversation whose template has no word for them. */
export function writtenCalls({ format, named }: ToolSyntax, calls: readonly WrittenCall[]): string {
  const { opener, closer, argumentsKey, isList, separator } = CALL_MARKUP[format];
  if (named !== undefined) {
    const head = ({ name, id }: WrittenCall) => `${opener}${name}${named.hasIds ? `${ID_MARK}${id}` : ''}${ARGUMENTS_MARK}`;
    return calls.map(call => head(call) + JSON.stringify(call.arguments)).join('');
  }
  const objects = calls.map(call => JSON.stringify({ name: call.name, [argumentsKey]: call.arguments }));
  if (closer !== undefined) return objects.map(object => `${opener}\n${object}\n${closer}`).join('\n');
  return isList ? `${opener} [${objects.join(`${separator} `)}]` : objects.join(`${separator} `);
}
