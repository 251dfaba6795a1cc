/**
 * DefaultTemplate: how a conversation is written for a model whose file brings no chat template.
 * ChatML if the vocabulary has its two control tokens; otherwise plain text, `Role: content` with an empty line between turns.
 */
export const CHATML = `{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;

export const PLAIN = `{% for message in messages %}{{ message.role | capitalize + ': ' + message.content + '\\n\\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}`;

export function defaultTemplate(hasToken: (spelling: string) => boolean): string {
  return hasToken('<|im_start|>') && hasToken('<|im_end|>') ? CHATML : PLAIN;
}
