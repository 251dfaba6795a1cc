/** AdminTarget: which gateway is spoken to, and with which key: as told, else by the environment, else the one that `npm start` has started. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DEVELOPMENT_KEY_FILE } from '../supervisor/development-key.ts';
import { readGatewayAddress } from '../supervisor/gateway-address.ts';
import { AdminError } from './admin-error.ts';

export interface AdminTarget {
  url: string;
  key: string;
}

export interface TargetOptions {
  url: string | undefined;
  key: string | undefined;
  dataFolder: string;
}

const DEFAULT_URL = 'http://127.0.0.1:8080';

/** Throws AdminError with the rule that is broken. */
export function adminTarget(options: TargetOptions, environment: NodeJS.ProcessEnv): AdminTarget {
  const given = options.url ?? (environment.SLUICE_URL || undefined);
  const url = given ?? readGatewayAddress(options.dataFolder) ?? DEFAULT_URL;
  if (!/^https?:\/\/[^\s]+$/.test(url) || !URL.canParse(url))
    throw new AdminError(`"${url}" is no URL that begins with http:// or https://.`, 2);
  const key = options.key ?? (environment.SLUICE_ADMIN_KEY || undefined) ?? developmentKeyOf(options.dataFolder, given);
  if (key === undefined)
    throw new AdminError('An admin key is needed: set SLUICE_ADMIN_KEY, or name the file that holds it with --key-file.', 2);
  return { url: url.replace(/\/+$/, ''), key };
}

/** It belongs to the gateway on this machine, so it is sent to no other. */
function developmentKeyOf(folder: string, url: string | undefined): string | undefined {
  if (url !== undefined && !isLoopback(url)) return undefined;
  return readKeyFile(join(folder, DEVELOPMENT_KEY_FILE));
}

/** Undefined where there is no such file. */
export function readKeyFile(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

function isLoopback(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === 'localhost' || hostname === '[::1]' || /^127\./.test(hostname);
}
