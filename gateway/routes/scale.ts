/** GET /scale: how many batchers a model needs, as JSON that an autoscaler reads (KEDA's metrics-api); for whom /metrics is. */
import type { Context } from 'hono';
import { ApiError } from '../../shared/errors.ts';
import { KeyReader } from '../api-key.ts';
import type { AppEnv } from '../app-env.ts';
import { anyShard, callBroker, heldRequests } from '../broker-call.ts';
import type { Settings } from '../env.ts';
import { checkMetricsReader } from '../metrics/reader.ts';
import type { ScaleSignal } from '../scale-signal.ts';

const MODEL = /^[\w./:-]{1,128}$/;

export interface ScaleOut {
  object: 'scale';
  model: string;
  desired_batchers: number;
  serving_batchers: number;
  requests_per_second: number;
  waiting_requests: number;
  /** Null where no knee is set, as the next two, which are null without a batcher too. */
  knee_requests_per_second: number | null;
  knee_ratio: number | null;
  queue_seconds: number | null;
}

export function scale(settings: Settings) {
  const reader = new KeyReader(settings);
  return async function readScale(c: Context<AppEnv>): Promise<Response> {
    await checkMetricsReader(c, settings, reader);
    const model = c.req.query('model');
    if (model === undefined) throw new ApiError('missing_required_parameter', 'The URL must name a model: ?model=…', { param: 'model' });
    if (!MODEL.test(model))
      throw new ApiError('invalid_value', 'A model is named by 1 to 128 letters, digits and . _ - / :', { param: 'model' });
    const held = await heldRequests(c, settings);
    const reply = await callBroker(c, anyShard(settings), { path: '/scale', body: { model, held } });
    if (!reply.ok) return reply;
    const signal: ScaleSignal = await reply.json();
    c.header('cache-control', 'no-store');
    return c.json({
      object: 'scale',
      model,
      desired_batchers: signal.desiredCount,
      serving_batchers: signal.servingCount,
      requests_per_second: signal.requestsPerSecond,
      waiting_requests: signal.waitingCount,
      knee_requests_per_second: signal.knee ?? null,
      knee_ratio: signal.kneeRatio ?? null,
      queue_seconds: signal.queueSeconds ?? null,
    } satisfies ScaleOut);
  };
}
