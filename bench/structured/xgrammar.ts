/**
 * Xgrammar: XGrammar by its WebAssembly build, as a second opinion on grammars. The package is UMD that calls itself ESM, so it is compiled under
 * a name of our own.
 */
import { readFileSync } from 'node:fs';
import { createRequire, Module } from 'node:module';
import { characterOfByte } from '../../batcher/model/byte-alphabet.ts';
import type { SpelledVocabulary } from '../../batcher/structured/spelled-vocabulary.ts';

export interface XgrammarMatcher {
  getNextTokenBitmask(): Promise<Int32Array>;
  acceptToken(id: number): boolean;
  dispose(): void;
}

/** What of the package is used here. */
interface Package {
  TokenizerInfo: {
    createTokenizerInfo(tokens: string[], type: string, prependSpace: boolean, size: number, stops: readonly number[]): Promise<object>;
  };
  GrammarCompiler: {
    createGrammarCompiler(info: object, isCached: boolean): Promise<Compiler>;
  };
  GrammarMatcher: { createGrammarMatcher(compiled: object): Promise<XgrammarMatcher> };
}

interface Compiler {
  compileGrammar(ebnf: string): Promise<{ dispose(): void }>;
  compileJSONSchema(schema: string): Promise<{ dispose(): void }>;
}

export class Xgrammar {
  readonly #package: Package;
  readonly #compiler: Compiler;

  private constructor(loaded: Package, compiler: Compiler) {
    this.#package = loaded;
    this.#compiler = compiler;
  }

  static async open(vocabulary: SpelledVocabulary): Promise<Xgrammar> {
    const path = createRequire(import.meta.url).resolve('@mlc-ai/web-xgrammar');
    const module = new Module(`${path}.cjs`) as unknown as {
      filename: string;
      exports: unknown;
      _compile(source: string, name: string): void;
    };
    module.filename = `${path}.cjs`;
    module._compile(readFileSync(path, 'utf8'), `${path}.cjs`);
    const loaded = module.exports as Package;
    // Without a text a token would be taken for a special one; those that end an answer are named.
    const tokens = Array.from({ length: vocabulary.vocabSize }, (_, id) => Array.from(vocabulary.bytesOf(id), characterOfByte).join(''));
    for (const id of vocabulary.endTokenIds) tokens[id] = '</s>';
    const info = await loaded.TokenizerInfo.createTokenizerInfo(tokens, 'byte_level', false, tokens.length, vocabulary.endTokenIds);
    return new Xgrammar(loaded, await loaded.GrammarCompiler.createGrammarCompiler(info, false));
  }

  async compileSchema(schema: object): Promise<void> {
    (await this.#compiler.compileJSONSchema(JSON.stringify(schema))).dispose();
  }

  /** Makers of matchers of one grammar. */
  async grammar(ebnf: string): Promise<() => Promise<XgrammarMatcher>> {
    const compiled = await this.#compiler.compileGrammar(ebnf);
    return () => this.#package.GrammarMatcher.createGrammarMatcher(compiled);
  }
}
