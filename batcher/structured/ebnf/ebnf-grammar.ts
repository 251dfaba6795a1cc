/**
 * EbnfGrammar: a grammar from its EBNF, in the notation of GBNF and XGrammar: `root ::= "yes" | [0-9]+`, groups, `* + ?` and `{n,m}`, comments from `#`
 * on. The answer is what `root` matches as a whole.
 */
import { character, choice, type Grammar, GrammarError, type GrammarNode, repeat, rule, sequence, text } from '../grammar.ts';
import { EbnfReader } from './ebnf-reader.ts';

const ROOT = 'root';
const MAX_RULES = 500;
const MAX_DEPTH = 64;
const MAX_REPEATS = 4_096;

/** Throws GrammarError that names the line. */
export function ebnfGrammar(source: string): Grammar {
  const rules = new EbnfParser(source).parse();
  if (!rules.has(ROOT)) throw new GrammarError(`there is no rule named '${ROOT}'`);
  for (const [name, node] of rules) {
    for (const used of rulesIn(node))
      if (!rules.has(used)) throw new GrammarError(`there is no rule named '${used}', which '${name}' uses`);
  }
  return { root: rule(ROOT), rules };
}

class EbnfParser {
  readonly #reader: EbnfReader;
  #depth = 0;

  constructor(source: string) {
    this.#reader = new EbnfReader(source);
  }

  parse(): Map<string, GrammarNode> {
    const rules = new Map<string, GrammarNode>();
    while (!this.#reader.isAtEnd) {
      const name = this.#reader.takeName('definition');
      if (name === undefined) this.#reader.fail("expected a rule, as 'name ::= …'");
      if (rules.has(name)) this.#reader.fail(`the rule '${name}' is there twice`);
      if (rules.size >= MAX_RULES) this.#reader.fail(`there are more than ${MAX_RULES} rules`);
      rules.set(name, withoutLeftRecursion(name, this.#alternatives()));
    }
    return rules;
  }

  #alternatives(): GrammarNode[] {
    if (++this.#depth > MAX_DEPTH) this.#reader.fail(`groups are nested deeper than ${MAX_DEPTH}`);
    const parts = [this.#sequence()];
    while (this.#reader.takeIf('|')) parts.push(this.#sequence());
    this.#depth--;
    return parts;
  }

  #sequence(): GrammarNode {
    const parts: GrammarNode[] = [];
    for (;;) {
      const part = this.#part();
      if (part === undefined) return sequence(...parts);
      parts.push(this.#repeated(part));
    }
  }

  #part(): GrammarNode | undefined {
    const reader = this.#reader;
    const literal = reader.takeLiteral();
    if (literal !== undefined) return text(literal);
    const set = reader.takeClass();
    if (set !== undefined) return character(set);
    if (reader.takeIf('(')) {
      if (reader.takeIf('=')) reader.fail('look-ahead is not supported');
      const group = choice(...this.#alternatives());
      if (!reader.takeIf(')')) reader.fail('a group is not closed');
      return group;
    }
    const name = reader.takeName('reference');
    return name === undefined ? undefined : rule(name);
  }

  #repeated(part: GrammarNode): GrammarNode {
    const reader = this.#reader;
    if (reader.takeIf('*')) return repeat(part);
    if (reader.takeIf('+')) return repeat(part, 1);
    if (reader.takeIf('?')) return repeat(part, 0, 1);
    const count = reader.takeCount();
    if (count === undefined) return part;
    if (count.least > count.most) reader.fail('a repetition has a least count above its most');
    if (Math.max(count.least, count.most === Number.POSITIVE_INFINITY ? 0 : count.most) > MAX_REPEATS) {
      reader.fail(`a part is repeated more than ${MAX_REPEATS} times`);
    }
    return repeat(part, count.least, count.most);
  }
}

/** `a ::= a x | y` is `a ::= y x*`. */
function withoutLeftRecursion(name: string, alternatives: readonly GrammarNode[]): GrammarNode {
  const startsWithItself = (node: GrammarNode): boolean =>
    (node.kind === 'rule' && node.name === name) ||
    (node.kind === 'sequence' && node.parts[0] !== undefined && startsWithItself(node.parts[0]));
  const own = alternatives.filter(startsWithItself);
  if (own.length === 0) return choice(...alternatives);
  const others = alternatives.filter(node => !startsWithItself(node));
  const tails = own.map(node => (node.kind === 'sequence' ? sequence(...node.parts.slice(1)) : sequence()));
  return sequence(choice(...others), repeat(choice(...tails)));
}

function* rulesIn(node: GrammarNode): Iterable<string> {
  if (node.kind === 'rule') yield node.name;
  else if (node.kind === 'sequence' || node.kind === 'choice') for (const part of node.parts) yield* rulesIn(part);
  else if (node.kind === 'repeat') yield* rulesIn(node.part);
}
