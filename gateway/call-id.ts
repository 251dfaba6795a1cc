/** CallId: the id of one call of a function. It follows from the reply's own id, which is random: told again it is the same, and no other reply has it. */

const REPLY_DIGITS = 20;

/** `call` is its index among those of its choice. Letters and digits behind the prefix. */
export function callId(prefix: string, replyId: string, { choice, call }: { choice: number; call: number }): string {
  const own = replyId.replace(/[^a-zA-Z0-9]/g, '').slice(-REPLY_DIGITS);
  return `${prefix}${own}${choice.toString(16)}${call.toString(16).padStart(3, '0')}`;
}
