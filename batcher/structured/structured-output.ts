/** StructuredOutput: the grammars of one model's structured answers: its spelled vocabulary, the thread that compiles, and the cache of what was compiled. */
import type { CompiledGrammar } from './compiled-grammar.ts';
import { GrammarCache } from './grammar-cache.ts';
import { GrammarCompiler } from './grammar-compiler.ts';
import type { AnswerForm } from './reasoned-structure.ts';
import { SpelledVocabulary, type VocabularySource } from './spelled-vocabulary.ts';

/** What is kept, and what preparing one grammar may take: past it the request is refused. */
const CACHE = { maxCount: 256, maxBytes: 128 * 2 ** 20 };
const COMPILATION = { timeoutMs: 5_000, memoryMegabytes: 256 };

export class StructuredOutput {
  readonly #compiler: GrammarCompiler;
  readonly #cache: GrammarCache;

  constructor(source: VocabularySource) {
    const vocabulary = new SpelledVocabulary(source);
    this.#compiler = new GrammarCompiler({ spelling: { writable: vocabulary.writable, all: vocabulary.all }, ...COMPILATION });
    this.#cache = new GrammarCache({ vocabulary, compile: structure => this.#compiler.compile(structure), ...CACHE });
  }

  /** Throws ApiError `invalid_value` for a structure that cannot be held to. */
  grammarOf(structure: AnswerForm): Promise<CompiledGrammar> {
    return this.#cache.grammarOf(structure);
  }

  async close(): Promise<void> {
    await this.#compiler.close();
  }
}
