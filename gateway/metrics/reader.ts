/** Reader: who may read what the gateway has measured: the operator, unless the settings open it to everybody or turn it off. */
import type { Context } from 'hono';
import { ApiError } from '../../shared/errors.ts';
import type { KeyReader } from '../api-key.ts';
import type { AppEnv } from '../app-env.ts';
import type { Settings } from '../env.ts';

/** Throws `not_found`, `invalid_api_key` or `insufficient_scope`. */
export async function checkMetricsReader(c: Context<AppEnv>, settings: Settings, keys: KeyReader): Promise<void> {
  if (settings.metrics === 'off') throw new ApiError('not_found', 'The metrics are turned off.');
  if (settings.metrics !== 'operator') return;
  const { kind } = await keys.identify(c.req.header('authorization'));
  if (kind !== 'operator') throw new ApiError('insufficient_scope', 'The metrics are for the operator only.');
}
