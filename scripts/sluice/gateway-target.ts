/** GatewayTarget: which gateway is spoken to, and with which key: as told, else by the environment, else the one that `npm start` has started. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DEVELOPMENT_KEY_FILE } from '../supervisor/development-key.ts';
import { readGatewayAddress } from '../supervisor/gateway-address.ts';
import { CommandError } from './command-error.ts';

export interface GatewayTarget {
  url: string;
  key: string;
}

export interface TargetOptions {
  url: string | undefined;
  keyFile: string | undefined;
  data: string;
}

/** Administration is done with one kind of key, all else with a tenant's. */
export type KeyUse = 'admin' | 'tenant';

const DEFAULT_URL = 'http://127.0.0.1:8080';
const KEYS: Readonly<Record<KeyUse, { variable: string; wanted: string }>> = {
  admin: { variable: 'SLUICE_ADMIN_KEY', wanted: 'An admin key' },
  tenant: { variable: 'SLUICE_API_KEY', wanted: "A tenant's key" },
};

/** Throws CommandError with the rule that is broken. */
export function gatewayTarget(options: TargetOptions, environment: NodeJS.ProcessEnv, use: KeyUse): GatewayTarget {
  const given = options.url ?? (environment.SLUICE_URL || undefined);
  const url = given ?? readGatewayAddress(options.data) ?? DEFAULT_URL;
  if (!/^https?:\/\/[^\s]+$/.test(url) || !URL.canParse(url))
    throw new CommandError(`"${url}" is no URL that begins with http:// or https://.`, 2);
  const { variable, wanted } = KEYS[use];
  const key = keyOfFile(options.keyFile) ?? (environment[variable] || undefined) ?? developmentKeyOf(options.data, given);
  if (key === undefined) throw new CommandError(`${wanted} is needed: set ${variable}, or name the file that holds it with --key-file.`, 2);
  return { url: url.replace(/\/+$/, ''), key };
}

function keyOfFile(path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  const key = readKeyFile(path);
  if (key === undefined) throw new CommandError(`The file ${path} cannot be read, or is empty.`, 2);
  return key;
}

/** It belongs to the gateway on this machine, so it is sent to no other. */
function developmentKeyOf(folder: string, url: string | undefined): string | undefined {
  if (url !== undefined && !isLoopback(url)) return undefined;
  return readKeyFile(join(folder, DEVELOPMENT_KEY_FILE));
}

/** Undefined where there is no such file. */
function readKeyFile(path: string): string | undefined {
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
