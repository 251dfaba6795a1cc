/** ReasonedStructure: the form of an answer that has one behind its reasoning, which has none. */
import type { Structure } from '../../shared/job.ts';
import type { Reasoning } from '../reasoning/reasoning-syntax.ts';
import type { CallStructure } from './calls/call-structure.ts';

export interface ReasonedStructure extends Reasoning {
  kind: 'reasoned';
  param: string;
  answer: Structure | CallStructure;
}

/** All that an answer can be held to. */
export type AnswerForm = Structure | CallStructure | ReasonedStructure;

/** What the answer is held to, with its reasoning where it may have some. */
export function formOf(answer: Structure | CallStructure | undefined, reasoning: Reasoning | undefined): AnswerForm | undefined {
  if (answer === undefined || reasoning === undefined) return answer;
  return { kind: 'reasoned', param: answer.param, ...reasoning, answer };
}
