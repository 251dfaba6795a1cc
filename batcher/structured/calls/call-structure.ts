/** CallStructure: the form of an answer that calls functions, in the way in which the model writes calls. */
import type { Structure } from '../../../shared/job.ts';
import type { ToolSyntax } from '../../tools/tool-format.ts';

export interface CallStructure extends ToolSyntax {
  kind: 'calls';
  /** The client's field that has the functions. */
  param: string;
  functions: readonly CallableFunction[];
  /** A call there must be, and no text. */
  isForced: boolean;
  /** More than one call. */
  isParallel: boolean;
  /** Of the text, where nothing is called. */
  answer?: Structure;
}

export interface CallableFunction {
  name: string;
  /** Of its arguments. */
  schema: unknown;
  /** Where the client has the schema. */
  param: string;
}
