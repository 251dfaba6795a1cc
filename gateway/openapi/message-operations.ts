/** MessageOperations: Anthropic's calls, as the description tells them. */
import { generation, QUICK_REFUSALS } from './generation-operation.ts';
import { json, type Operation } from './operation.ts';

const create = generation({
  path: '/v1/messages',
  id: 'createMessage',
  summary: "Answers a conversation, in Anthropic's shapes.",
  request: 'MessageRequest',
  whole: 'Message',
  chunk: 'MessageEvent',
});

export const MESSAGE_OPERATIONS: readonly Operation[] = [
  {
    ...create,
    errors: 'message',
    refusals: [...create.refusals, 'thread_unsupported_request'],
    replies: create.replies.map(reply => ({
      ...reply,
      headers: [...(reply.headers ?? []), 'request-id'],
    })),
  },
  {
    ...{ method: 'post', path: '/v1/messages/count_tokens', id: 'countMessageTokens', tag: 'Inference', access: 'key' },
    summary: 'How many tokens the prompt of a message would have.',
    description: 'It counts as a request, and as no tokens.',
    errors: 'message',
    request: 'TokenCountRequest',
    replies: [{ ...json(200, 'TokenCount', 'The count.'), headers: ['x-sluice-stream-id', 'request-id'] }],
    refusals: [...QUICK_REFUSALS, 'thread_unsupported_request'],
  },
];
