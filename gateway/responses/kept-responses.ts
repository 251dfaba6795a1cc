/** KeptResponses: responses that can be asked for again by their id, in whatever form they are asked for then, and only by their tenant. */
import { ApiError } from '../../shared/errors.ts';
import type { ChatMessage } from '../../shared/job.ts';
import { cancelKey } from '../../shared/keys.ts';
import { isTerminal } from '../../shared/token-event.ts';
import type { ResponseRequest, ResponseShape } from '../broker-call.ts';
import type { RecordKeeper } from '../record-keeper.ts';
import type { RedisLink } from '../redis.ts';
import type { ReplyRecord } from '../reply-record.ts';
import type { Visits } from '../visits.ts';
import { responseHead } from '../writer-for.ts';
import { inputItems, keptConversation } from './response-input.ts';
import { failedStream } from './response-stream.ts';
import { answerOf, responseNow } from './response-writer.ts';

export interface KeptResponsesOptions {
  link: RedisLink;
  keeper: RecordKeeper;
  visits: Visits;
}

type KeptRecord = ReplyRecord & { reply: ResponseShape };

export interface DeletedResponseOut {
  id: string;
  object: 'response';
  deleted: true;
}

export class KeptResponses {
  readonly #options: KeptResponsesOptions;

  constructor(options: KeptResponsesOptions) {
    this.#options = options;
  }

  async tell({ id, tenant, want }: ResponseRequest, signal: AbortSignal): Promise<Response> {
    const { keeper, visits } = this.#options;
    const found = await keeper.find(id, tenant);
    if (want.kind === 'conversation') return Response.json(await this.#conversation(isKept(found) ? found : undefined, id));
    if (!isKept(found)) throw noResponse(id);
    switch (want.kind) {
      case 'input':
        return await this.#input(found);
      case 'stream':
        return await this.#stream(found, want.startingAfter, signal);
      case 'cancelled':
        if (!found.reply.isBackground) throw new ApiError('invalid_value', 'Only a response in the background can be cancelled.');
        await visits.cancel({ id, tenant });
        return await this.#whole(found);
      case 'whole':
        return await this.#whole(found);
      case 'deleted':
        return await this.#delete(found);
    }
  }

  async #whole(record: KeptRecord): Promise<Response> {
    const { link, keeper } = this.#options;
    const events = await keeper.events(record.id, 0);
    const response = responseNow(responseHead(record, record.reply), events);
    const isStopped = !events.some(isTerminal) && (await link.run(client => client.exists(cancelKey(record.id)))) === 1;
    // Its batcher has yet to say so.
    return Response.json(isStopped ? { ...response, status: 'cancelled' } : response);
  }

  async #stream(record: KeptRecord, startingAfter: number, signal: AbortSignal): Promise<Response> {
    const { keeper, visits } = this.#options;
    const { id, tenant, reply } = record;
    const events = await keeper.events(id, 0);
    // Of one that has failed the status of this reply is no news.
    if (events.at(-1)?.type === 'error') return failedStream(responseHead(record, reply), startingAfter, events);
    const streamed = await visits.join(id, tenant, { signal, seenSeq: -1, reply: { ...reply, isStreamed: true, startingAfter } });
    if (streamed === undefined) throw noResponse(id);
    return streamed;
  }

  /** For a response that goes on from this one. */
  async #conversation(record: KeptRecord | undefined, id: string): Promise<ChatMessage[]> {
    const { keeper } = this.#options;
    const param = 'previous_response_id';
    const [input, events] = record === undefined ? [] : await Promise.all([keeper.input(record), keeper.events(id, 0)]);
    if (input === undefined || events === undefined) {
      throw new ApiError('previous_response_not_found', `Previous response with id '${id.slice(0, 128)}' not found, or no more.`, {
        param,
      });
    }
    const last = events.at(-1);
    if (last?.type === 'finish') return keptConversation(input, answerOf(id, events));
    const state = last?.type === 'error' ? 'has no answer' : 'is not over yet';
    throw new ApiError('invalid_value', `Invalid value for '${param}': the response '${id}' ${state}.`, { param });
  }

  async #input(record: KeptRecord): Promise<Response> {
    const kept = await this.#options.keeper.input(record);
    if (kept === undefined) throw noResponse(record.id);
    return Response.json(inputItems(record.id, kept));
  }

  /** One that nobody listens to is stopped; one whose client is there goes on to its end for that client, and cannot be asked for again. */
  async #delete(record: KeptRecord): Promise<Response> {
    const { keeper, visits } = this.#options;
    const { id, tenant, reply } = record;
    if (reply.isBackground) await visits.cancel({ id, tenant });
    const isOver = reply.isBackground || (await keeper.events(id, 0)).some(isTerminal);
    await keeper.forget(record, isOver ? undefined : { ...record, reply: { ...reply, isStored: false } });
    return Response.json({ id, object: 'response', deleted: true } satisfies DeletedResponseOut);
  }
}

/** The reply to who does not wait for the answer. */
export function acceptedResponse(record: ReplyRecord, headers: Readonly<Record<string, string>>): Response {
  const { reply } = record;
  if (reply.kind !== 'response') throw new TypeError(`a ${reply.kind} is always waited for`);
  return Response.json(responseNow(responseHead(record, reply), []), { headers: { ...headers, 'x-sluice-stream-id': record.id } });
}

function isKept(record: ReplyRecord | undefined): record is KeptRecord {
  return record?.reply.kind === 'response' && record.reply.isStored;
}

function noResponse(id: string): ApiError {
  return new ApiError('not_found', `There is no response '${id.slice(0, 128)}', or no more.`);
}
