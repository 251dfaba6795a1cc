/** TokenEstimate: about how many tokens a prompt has, told from its bytes, rather too many than too few; what it has is corrected later. */
import { type Job, type Prompt, promptsOf } from './job.ts';

/** English has over four bytes a token, code over three; other scripts fewer, and for those the estimate is raised when the batcher has counted. */
const BYTES_PER_TOKEN = 3;
const TEMPLATE_TOKENS_PER_MESSAGE = 8;
/** Begin and end, and the default system message that some templates add. */
const TEMPLATE_TOKENS = 40;
const BEGIN_TOKENS = 1;
/** In every runtime, though not in the language's own library. */
declare const TextEncoder: new () => { encode(text: string): { byteLength: number } };
const encoder = new TextEncoder();

/** Of all prompts, whatever is asked of them. */
export function estimatePromptTokens(job: Pick<Job, 'prompt' | 'morePrompts'>): number {
  const tokens = (text: string) => (text === '' ? 0 : Math.ceil(encoder.encode(text).byteLength / BYTES_PER_TOKEN));
  return promptsOf(job).reduce((sum, prompt) => sum + estimate(prompt, tokens), 0);
}

function estimate(prompt: Prompt, tokens: (text: string) => number): number {
  switch (prompt.kind) {
    case 'tokens':
      return prompt.tokenIds.length;
    case 'text':
      return BEGIN_TOKENS + tokens(prompt.text);
    case 'chat': {
      let sum = TEMPLATE_TOKENS + (prompt.tools === undefined ? 0 : tokens(JSON.stringify(prompt.tools)));
      for (const { content, name, toolCalls } of prompt.messages) {
        sum += TEMPLATE_TOKENS_PER_MESSAGE + tokens(content ?? '') + tokens(name ?? '');
        if (toolCalls !== undefined) sum += tokens(JSON.stringify(toolCalls));
      }
      return sum;
    }
  }
}
