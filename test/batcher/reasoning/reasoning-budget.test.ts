import { expect, test } from 'vitest';
import { ReasoningBudget } from '../../../batcher/reasoning/reasoning-budget.ts';

const bytesOf = (text: string) => new TextEncoder().encode(text);
/** Tokens are bytes. */
const CLOSER = [...bytesOf('</think>')];

function budgetOf(maxTokens: number, start: 'begun' | 'possible'): ReasoningBudget {
  return new ReasoningBudget({ reasoning: { start }, maxTokens, closerTokenIds: CLOSER, tokenBytes: id => Uint8Array.of(id) });
}

/** What is said when the model says this, as far as it may choose. */
function said(budget: ReasoningBudget, text: string): string {
  const bytes: number[] = [];
  for (const byte of bytesOf(text)) {
    for (let forced = budget.forcedTokenId; forced !== undefined; forced = budget.forcedTokenId) {
      bytes.push(forced);
      budget.accept(forced);
    }
    bytes.push(byte);
    budget.accept(byte);
  }
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

test.each([
  ['is ended when it is spent', 'begun', 4, 'Hm, so.', 'Hm, </think>so.'],
  ['begins with the opening mark', 'possible', 4, '<think>Hm, so.', '<think>Hm,</think> so.'],
  ['is none where the answer begins with something else', 'possible', 1, '<thin>Hm, so.', '<thin>Hm, so.'],
  ['ends a character that was begun', 'begun', 4, 'Hm \u{4e00}.', 'Hm \u{4e00}</think>.'],
  ['ends anew where the model had begun to end it', 'begun', 4, 'Hm</x', 'Hm</</think>x'],
  ['is left to end by itself', 'begun', 20, 'Hm.</think>So.', 'Hm.</think>So.'],
] as const)('reasoning %s', (_, start, maxTokens, wanted, heard) => {
  expect(said(budgetOf(maxTokens, start), wanted)).toBe(heard);
});
