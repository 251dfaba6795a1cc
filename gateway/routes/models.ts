/** GET /v1/models and /v1/models/{id}: what is served now. */
import type { Context } from 'hono';
import { ApiError } from '../../shared/errors.ts';
import type { TaskKind } from '../../shared/job.ts';
import type { AppEnv } from '../app-env.ts';
import { anyShard, callBroker } from '../broker-call.ts';
import { defaultName, type ServedModel } from '../card-board.ts';
import type { Settings } from '../env.ts';

export function listModels(settings: Settings) {
  return async function models(c: Context<AppEnv>): Promise<Response> {
    const reply = await callBroker(c, anyShard(settings), { path: '/models' });
    if (!reply.ok) return reply;
    const served: ServedModel[] = await reply.json();
    return c.json({ object: 'list', data: served.map(modelOut) });
  };
}

/** `default` is answered with the model that it stands for. */
export function retrieveModel(settings: Settings) {
  return async function model(c: Context<AppEnv>): Promise<Response> {
    const reply = await callBroker(c, anyShard(settings), { path: '/models' });
    if (!reply.ok) return reply;
    const served: ServedModel[] = await reply.json();
    const asked = c.req.param('id') ?? '';
    const name = asked === 'default' ? defaultName(served, 'generate', settings.defaultModel) : asked;
    const found = served.find(candidate => candidate.name === name);
    if (found === undefined)
      throw new ApiError('model_not_found', `The model '${asked.slice(0, 128)}' does not exist.`, { param: 'model' });
    return c.json(modelOut(found));
  };
}

export interface ModelOut {
  id: string;
  object: 'model';
  created: number;
  owned_by: string;
  context_length: number;
  /** vLLM's name for the same. */
  max_model_len: number;
  max_output_tokens: number;
  endpoints: string[];
  dimensions?: number | undefined;
}

/** Calls by what a model must be able to do for them. */
const ENDPOINTS: readonly (readonly [TaskKind, readonly string[]])[] = [
  ['generate', ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages', '/v1/messages/count_tokens']],
  ['embed', ['/v1/embeddings']],
  ['tokenize', ['/tokenize']],
  ['detokenize', ['/detokenize']],
];

function modelOut(model: ServedModel): ModelOut {
  const { name, contextTokens, servedSince, tasks, dimensions } = model;
  return {
    id: name,
    object: 'model',
    created: Math.floor(servedSince / 1000),
    owned_by: 'sluice',
    context_length: contextTokens,
    max_model_len: contextTokens,
    // The prompt takes one at least; of a prompt of n tokens the answer may have so many fewer.
    max_output_tokens: tasks.includes('generate') ? contextTokens - 1 : 0,
    endpoints: ENDPOINTS.flatMap(([task, paths]) => (tasks.includes(task) ? paths : [])),
    ...(dimensions !== undefined && { dimensions }),
  };
}
