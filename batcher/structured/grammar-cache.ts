/**
 * GrammarCache: the compiled grammars of the structures that were asked for last, bounded in number and memory; what was refused is remembered too, so
 * that it is not tried again and again. One that is asked for while it is being compiled is compiled once.
 */
import { createHash } from 'node:crypto';
import { ApiError } from '../../shared/errors.ts';
import type { Automaton } from './automaton.ts';
import { CompiledGrammar } from './compiled-grammar.ts';
import { GrammarError } from './grammar.ts';
import type { AnswerForm } from './reasoned-structure.ts';
import type { SpelledVocabulary } from './spelled-vocabulary.ts';

export interface GrammarCacheOptions {
  vocabulary: SpelledVocabulary;
  /** Throws GrammarError. */
  compile(structure: AnswerForm): Promise<Automaton>;
  maxCount: number;
  maxBytes: number;
}

/** Of one that is being compiled or was refused. */
const SMALL_BYTES = 256;

export class GrammarCache {
  readonly #options: GrammarCacheOptions;
  /** By digest of the structure; asked for last comes last. */
  readonly #entries = new Map<string, { pending: Promise<CompiledGrammar>; grammar: CompiledGrammar | undefined }>();

  constructor(options: GrammarCacheOptions) {
    this.#options = options;
  }

  get count(): number {
    return this.#entries.size;
  }

  get bytes(): number {
    return [...this.#entries.values()].reduce((sum, { grammar }) => sum + (grammar?.bytes ?? SMALL_BYTES), 0);
  }

  /** Throws ApiError `invalid_value` that tells what cannot be held to, and where. */
  async grammarOf(structure: AnswerForm): Promise<CompiledGrammar> {
    const { param, ...content } = structure;
    const key = createHash('sha256').update(JSON.stringify(content)).digest('base64');
    const entry = this.#entries.get(key) ?? this.#start(structure, key);
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    try {
      return await entry.pending;
    } catch (error) {
      throw error instanceof GrammarError ? refusalOf(error, structure) : error;
    } finally {
      this.#trim();
    }
  }

  #start(structure: AnswerForm, key: string): { pending: Promise<CompiledGrammar>; grammar: CompiledGrammar | undefined } {
    const { compile, vocabulary } = this.#options;
    const pending = compile(structure).then(automaton => new CompiledGrammar(automaton, vocabulary));
    const entry: { pending: Promise<CompiledGrammar>; grammar: CompiledGrammar | undefined } = { pending, grammar: undefined };
    pending.then(
      grammar => {
        entry.grammar = grammar;
      },
      error => {
        // Only what the structure itself is to blame for will be so again.
        if (!(error instanceof GrammarError) && this.#entries.get(key) === entry) this.#entries.delete(key);
      },
    );
    return entry;
  }

  /** Answers under way keep theirs. */
  #trim(): void {
    const { maxCount, maxBytes } = this.#options;
    let bytes = this.bytes;
    for (const [key, { grammar }] of this.#entries) {
      if (this.#entries.size <= maxCount && bytes <= maxBytes) return;
      if (this.#entries.size === 1) return;
      bytes -= grammar?.bytes ?? SMALL_BYTES;
      this.#entries.delete(key);
    }
  }
}

const NOUNS: Record<Exclude<AnswerForm['kind'], 'reasoned'>, string> = {
  json: 'structure',
  schema: 'JSON schema',
  regex: 'regular expression',
  choice: 'list of choices',
  grammar: 'grammar',
  calls: 'list of functions',
};

function refusalOf({ message, where, param: part }: GrammarError, form: AnswerForm): ApiError {
  const structure = form.kind === 'reasoned' ? form.answer : form;
  // Of a list of functions one schema is at fault, or the structure of the text beside it.
  const { kind, param = structure.param } = part === undefined ? structure : { kind: 'schema' as const, param: part };
  const place = where === undefined ? '' : ` at ${where}`;
  return new ApiError('invalid_value', `Invalid ${NOUNS[kind]} in '${param}'${place}: ${message}.`, { param });
}
