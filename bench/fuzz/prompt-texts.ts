/**
 * PromptTexts: all of Unicode, spelled control tokens, template syntax and very long runs, through chat template and tokenizer. What was typed must
 * come out again, byte for byte, and never as a control token.
 */
import { loadChat } from '../../batcher/model/chat-template.ts';
import { encodePrompt } from '../../batcher/prompt-encoder.ts';
import { ApiError } from '../../shared/errors.ts';
import type { ChatMessage, Tool } from '../../shared/job.ts';
import type { Dice } from './dice.ts';
import { strangeText, strangeValue } from './strange-values.ts';
import type { PartSurface } from './surface.ts';

const LONGEST = 150_000;

export const promptTexts: PartSurface = {
  what: 'texts through chat template and tokenizer',
  async open(model) {
    const chat = await loadChat(model);
    const { tokenizer } = chat;
    const controls = tokenizer.vocabulary.tokens.filter((_, id) => tokenizer.isControl(id));
    const text = (dice: Dice) =>
      Array.from({ length: dice.between(1, 3) }, () => (dice.chance(0.3) ? dice.pick(controls) : strangeText(dice, LONGEST))).join('');
    /** How many control tokens the template itself writes. */
    const controlCount = (ids: readonly number[]) => ids.filter(id => tokenizer.isControl(id)).length;
    return {
      async feed(dice) {
        const plain = text(dice);
        requireSame(plain.toWellFormed(), tokenizer.decode(tokenizer.encodeText(plain)));
        const messages = Array.from({ length: dice.between(1, 3) }, (): ChatMessage => messageOf(dice, text));
        const tools = dice.chance(0.2) ? [toolOf(dice)] : undefined;
        const harmless = messages.map(message => ({ ...message, content: message.content === null ? null : 'x' }));
        try {
          const ids = encodePrompt({ kind: 'chat', messages, ...(tools && { tools }) }, chat);
          const wanted = controlCount(encodePrompt({ kind: 'chat', messages: harmless, ...(tools && { tools }) }, chat));
          if (controlCount(ids) !== wanted) throw new Error(`${controlCount(ids)} control tokens instead of ${wanted}`);
          return 'encoded';
        } catch (thrown) {
          if (!(thrown instanceof ApiError)) throw thrown;
          return `refused (${thrown.code})`;
        }
      },
    };
  },
};

/** Character for character, but for those that the vocabulary has no bytes for, which are U+FFFD. */
function requireSame(text: string, told: string): void {
  if (text === told) return;
  const characters = Array.from(told);
  const fault = Array.from(text).findIndex((character, index) => characters[index] !== character && characters[index] !== '\ufffd');
  if (fault !== -1) throw new Error(`character ${fault} came back as ${JSON.stringify(characters[fault] ?? null)}`);
}

function toolOf(dice: Dice): Tool {
  return { type: 'function', function: { name: strangeText(dice, 64) || 'f', parameters: strangeValue(dice) } };
}

function messageOf(dice: Dice, text: (dice: Dice) => string): ChatMessage {
  const role = dice.pick(['system', 'user', 'assistant', 'tool'] as const);
  return {
    role,
    content: text(dice),
    ...(dice.chance(0.2) && { name: strangeText(dice, 64) }),
    ...(role === 'tool' && { toolCallId: 'call-1' }),
    ...(role === 'assistant' &&
      dice.chance(0.3) && {
        toolCalls: [
          {
            id: 'call-1',
            type: 'function' as const,
            function: { name: strangeText(dice, 64), arguments: JSON.stringify(strangeValue(dice)) ?? '' },
          },
        ],
      }),
  };
}
