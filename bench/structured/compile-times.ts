/** CompileTimes: how long some schemas take until they can be followed, here and by XGrammar's WebAssembly build, one after the other, warm. */
import { loadTokenizer } from '../../batcher/model/tokenizer.ts';
import { CompiledGrammar } from '../../batcher/structured/compiled-grammar.ts';
import { compileStructure } from '../../batcher/structured/grammar-compilation.ts';
import { GrammarMatcher } from '../../batcher/structured/grammar-matcher.ts';
import { SpelledVocabulary } from '../../batcher/structured/spelled-vocabulary.ts';
import { Xgrammar } from './xgrammar.ts';

export interface CompileTime {
  name: string;
  compileMs: number;
  firstMaskMs: number;
  xgrammarMs: number;
}

const TEXT = { type: 'string' };
const record = (properties: Record<string, object>) => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

const SCHEMAS: Record<string, object> = {
  'three fields': record({ name: TEXT, age: { type: 'integer' }, isMember: { type: 'boolean' } }),
  'a bounded text': record({ title: { type: 'string', maxLength: 100 } }),
  'twenty fields, nested': record(
    Object.fromEntries(
      Array.from({ length: 20 }, (_, i) => [`field_${i}`, i % 4 === 0 ? record({ a: TEXT, b: { type: 'number' } }) : TEXT]),
    ),
  ),
  'a list of records with patterns': {
    type: 'array',
    items: record({
      id: { type: 'string', pattern: '^[A-Z]{3}-[0-9]{6}$' },
      tags: { type: 'array', items: TEXT },
      kind: { enum: ['a', 'b', 'c'] },
    }),
  },
};

const WARM_UPS = 3;

export async function compileTimes(modelDirectory: string): Promise<CompileTime[]> {
  const tokenizer = await loadTokenizer(modelDirectory);
  const vocabulary = new SpelledVocabulary(tokenizer);
  const xgrammar = await Xgrammar.open(vocabulary);
  const results: CompileTime[] = [];
  for (const [name, schema] of Object.entries(SCHEMAS)) {
    let result: CompileTime | undefined;
    for (let i = 0; i <= WARM_UPS; i++) {
      const start = performance.now();
      const grammar = new CompiledGrammar(compileStructure({ kind: 'schema', param: 'bench', schema }, vocabulary), vocabulary);
      const compiled = performance.now();
      new GrammarMatcher(grammar).mask();
      const masked = performance.now();
      await xgrammar.compileSchema(schema);
      result = { name, compileMs: compiled - start, firstMaskMs: masked - compiled, xgrammarMs: performance.now() - masked };
    }
    results.push(result!);
  }
  return results;
}
