/** HandOver: the Worker's counts on their way to a broker, of all isolates to the same one. */
import type { Context } from 'hono';
import type { AppEnv } from '../app-env.ts';
import { anyShard, callBroker } from '../broker-call.ts';
import type { Settings } from '../env.ts';
import type { SeriesEntry } from './series.ts';

/** Throws when nobody takes them. */
export type HandOver = (entries: SeriesEntry[]) => Promise<void>;

export function handOverTo(c: Context<AppEnv>, settings: Pick<Settings, 'instance'>): HandOver {
  return async entries => {
    const reply = await callBroker(c, anyShard(settings), { path: '/counts', body: { entries } });
    if (!reply.ok) throw new Error(`The counts were not taken: ${reply.status}.`);
  };
}
