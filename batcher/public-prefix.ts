/**
 * PublicPrefix: the tokens that every chat with a given system message begins with. What the operator approves as public is computed once for all
 * tenants; they can tell from the time to their first token that somebody used it, and nothing else.
 */
import type { ChatTemplate } from './model/chat-template.ts';

/** Users whose chats have only the system message in common. */
const USERS = ['A', '1', '\n'];

/** Empty where the template puts nothing of the system message first. Throws ApiError for a message that the template refuses. */
export function publicPrefixTokens(systemMessage: string, template: Pick<ChatTemplate, 'renderChat'>): number[] {
  const [first, ...others] = USERS.map(content =>
    template.renderChat([
      { role: 'system', content: systemMessage },
      { role: 'user', content },
    ]),
  );
  let length = 0;
  while (length < first!.length && others.every(other => other[length] === first![length])) length += 1;
  return first!.slice(0, length);
}
