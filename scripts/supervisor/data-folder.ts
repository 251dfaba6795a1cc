/** DataFolder: where one installation keeps what must survive a restart; for its owner only. */
import { mkdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { StartError } from './start-error.ts';

export interface DataFolder {
  path: string;
  /** Redis' append-only file and configuration. */
  redis: string;
  /** The Worker's bundle and the state of its Durable Objects. */
  gateway: string;
  logs: string;
}

/** XDG_DATA_HOME/sluice; a relative XDG path is to be ignored, says the specification. */
export function defaultDataFolder(environment: NodeJS.ProcessEnv = process.env): string {
  const home = environment.XDG_DATA_HOME;
  return join(home !== undefined && isAbsolute(home) ? home : join(homedir(), '.local', 'share'), 'sluice');
}

export function openDataFolder(folder: string): DataFolder {
  const path = resolve(folder);
  const data = { path, redis: join(path, 'redis'), gateway: join(path, 'gateway'), logs: join(path, 'logs') };
  try {
    for (const each of Object.values(data)) mkdirSync(each, { recursive: true, mode: 0o700 });
  } catch (thrown) {
    throw new StartError(`The data folder ${path} cannot be used: ${(thrown as Error).message}. Choose another with --data.`, {
      cause: thrown,
    });
  }
  return data;
}
