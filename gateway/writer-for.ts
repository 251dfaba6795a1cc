/** WriterFor: the writer of the body that a request asked for: of which call, as a stream or whole. */
import type { ResponseShape } from './broker-call.ts';
import { ChatBody } from './chat-body.ts';
import { chatStream } from './chat-stream.ts';
import { CompletionBody } from './completion-body.ts';
import { completionStream } from './completion-stream.ts';
import { EmbeddingsBody } from './embeddings-body.ts';
import { MessageBody, TokenCountBody } from './messages/message-body.ts';
import { MessageStream } from './messages/message-stream.ts';
import { QuickBody } from './quick-body.ts';
import type { ReplyRecord } from './reply-record.ts';
import type { ReplyWriter } from './reply-writer.ts';
import type { ResponseHead } from './responses/response-object.ts';
import { ResponseStream } from './responses/response-stream.ts';
import { ResponseWriter } from './responses/response-writer.ts';

export type Written = Pick<
  ReplyRecord,
  'id' | 'submittedAt' | 'model' | 'reply' | 'choiceCount' | 'promptCount' | 'wantsLogprobs' | 'serviceClass'
>;

/** Of a response, whatever form it is wanted in. */
export function responseHead(record: Pick<Written, 'id' | 'submittedAt' | 'model'>, reply: ResponseShape): ResponseHead {
  const { isBackground, isStored, echo } = reply;
  return { id: record.id, created: Math.floor(record.submittedAt / 1000), model: record.model, isBackground, isStored, echo };
}

export function writerFor(record: Written): ReplyWriter {
  const { reply, choiceCount, promptCount } = record;
  const head = { id: record.id, created: Math.floor(record.submittedAt / 1000), model: record.model };
  switch (reply.kind) {
    case 'chat': {
      const { includeUsage, hasRunningUsage = false, hasNamedCall } = reply;
      return reply.isStreamed
        ? chatStream({ head, choiceCount, includeUsage, hasRunningUsage, hasNamedCall })
        : new ChatBody({ head, choiceCount, wantsLogprobs: record.wantsLogprobs, hasNamedCall });
    }
    case 'completion': {
      const { includeUsage, keptCount, wantsLogprobs } = reply;
      return reply.isStreamed
        ? completionStream({ head, promptCount, choiceCount, includeUsage, wantsLogprobs })
        : new CompletionBody({ head, promptCount, choiceCount, keptCount, wantsLogprobs });
    }
    case 'response': {
      const whole = responseHead(record, reply);
      return reply.isStreamed ? new ResponseStream(whole, reply.startingAfter) : new ResponseWriter(whole);
    }
    case 'message': {
      const { id, model, serviceClass } = record;
      return reply.isStreamed ? new MessageStream({ id, model, serviceClass }) : new MessageBody({ id, model, serviceClass });
    }
    case 'embeddings':
      return new EmbeddingsBody({ model: record.model, encodingFormat: reply.encodingFormat });
    case 'tokenize':
    case 'detokenize':
      return new QuickBody();
    case 'count_tokens':
      return new TokenCountBody();
  }
}
