/** StructureGrammar: the grammar of what a request asks its answer to be. */
import type { Structure } from '../../shared/job.ts';
import { callGrammar } from './calls/call-grammar.ts';
import { ebnfGrammar } from './ebnf/ebnf-grammar.ts';
import { character, type Grammar, GrammarError, oneOfTexts } from './grammar.ts';
import { ANY_OBJECT, JSON_RULES } from './json/json-text.ts';
import { reasonedGrammar } from './reasoned-grammar.ts';
import type { AnswerForm } from './reasoned-structure.ts';
import { graphNode } from './regex/character-graph.ts';
import { regexGraph } from './regex/regex-graph.ts';
import { schemaGrammar } from './schema/schema-grammar.ts';

/** Throws GrammarError. */
export function structureGrammar(structure: AnswerForm): Grammar {
  switch (structure.kind) {
    case 'json':
      return { root: ANY_OBJECT, rules: JSON_RULES };
    case 'schema':
      return schemaGrammar(structure.schema);
    case 'regex':
      return { root: graphNode(regexGraph(structure.pattern, 'whole'), character), rules: new Map() };
    case 'choice':
      return { root: oneOfTexts(structure.choices), rules: new Map() };
    case 'grammar':
      return ebnfGrammar(structure.grammar);
    case 'calls':
      return callGrammar(structure, structure.answer && answerGrammar(structure.answer));
    case 'reasoned':
      return reasonedGrammar(structure, structureGrammar(structure.answer));
  }
}

/** Of the text beside calls. */
function answerGrammar(answer: Structure): Grammar {
  try {
    return structureGrammar(answer);
  } catch (error) {
    throw error instanceof GrammarError ? new GrammarError(error.message, error.where, answer.param) : error;
  }
}
