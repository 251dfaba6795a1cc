/** KeptResponses: responses that can be asked for again by their id, in whatever form they are asked for then, and only by their tenant. */
import { ApiError } from '../../shared/errors.ts';
import { cancelKey } from '../../shared/keys.ts';
import { isTerminal } from '../../shared/token-event.ts';
import type { ResponseRequest } from '../broker-call.ts';
import type { RecordKeeper } from '../record-keeper.ts';
import type { RedisLink } from '../redis.ts';
import type { ReplyRecord } from '../reply-record.ts';
import type { Visits } from '../visits.ts';
import { responseHead } from '../writer-for.ts';
import { failedStream } from './response-stream.ts';
import { responseNow } from './response-writer.ts';

export interface KeptResponsesOptions {
  link: RedisLink;
  keeper: RecordKeeper;
  visits: Visits;
}

export class KeptResponses {
  readonly #options: KeptResponsesOptions;

  constructor(options: KeptResponsesOptions) {
    this.#options = options;
  }

  async tell({ id, tenant, stream, isCancelled }: ResponseRequest, signal: AbortSignal): Promise<Response> {
    const { link, keeper, visits } = this.#options;
    const record = await keeper.find(id, tenant);
    if (record?.reply.kind !== 'response' || !record.reply.isStored) throw noResponse(id);
    const { reply } = record;
    if (isCancelled === true) {
      if (!reply.isBackground) throw new ApiError('invalid_value', 'Only a response in the background can be cancelled.');
      await visits.cancel({ id, tenant });
    }
    const events = await keeper.events(id, 0);
    const last = events.at(-1);
    const head = responseHead(record, reply);
    if (stream !== undefined) {
      // Of one that has failed the status of this reply is no news.
      if (last?.type === 'error') return failedStream(head, stream.startingAfter, events);
      const streamed = await visits.join(id, tenant, { signal, seenSeq: -1, reply: { ...reply, isStreamed: true, ...stream } });
      if (streamed === undefined) throw noResponse(id);
      return streamed;
    }
    const isStopped = !events.some(isTerminal) && (await link.run(client => client.exists(cancelKey(id)))) === 1;
    // Its batcher has yet to say so.
    return Response.json(isStopped ? { ...responseNow(head, events), status: 'cancelled' } : responseNow(head, events));
  }
}

/** The reply to who does not wait for the answer. */
export function acceptedResponse(record: ReplyRecord, headers: Readonly<Record<string, string>>): Response {
  const { reply } = record;
  if (reply.kind !== 'response') throw new TypeError(`a ${reply.kind} is always waited for`);
  return Response.json(responseNow(responseHead(record, reply), []), { headers: { ...headers, 'x-sluice-stream-id': record.id } });
}

function noResponse(id: string): ApiError {
  return new ApiError('not_found', `There is no response '${id.slice(0, 128)}', or no more.`);
}
