/** GET /v1/models and /v1/models/{id}: what is served now. */
import type { Context } from 'hono';
import { ApiError } from '../../shared/errors.ts';
import type { AppEnv } from '../app-env.ts';
import { anyShard, callBroker } from '../broker-call.ts';
import type { ServedModel } from '../card-board.ts';
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
    const name = asked === 'default' ? (settings.defaultModel ?? served[0]?.name) : asked;
    const found = served.find(candidate => candidate.name === name);
    if (found === undefined)
      throw new ApiError('model_not_found', `The model '${asked.slice(0, 128)}' does not exist.`, { param: 'model' });
    return c.json(modelOut(found));
  };
}

function modelOut(model: ServedModel) {
  return {
    id: model.name,
    object: 'model',
    created: Math.floor(model.servedSince / 1000),
    owned_by: 'sluice',
    context_length: model.contextTokens,
  };
}
