/** GatewayCommand: how the gateway is started, on raw workerd or under wrangler dev, with the same bindings. */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stop } from 'esbuild';
import { bundleGateway } from '../../deploy/bundle-gateway.ts';
import { writeWorkerdConfig } from '../../deploy/workerd-config.ts';
import { extraCertificates } from './extra-certificates.ts';
import type { Runtime } from './start-options.ts';

const PROJECT = join(import.meta.dirname, '..', '..');

export interface GatewayPlan {
  runtime: Runtime;
  folder: string;
  host: string;
  port: number;
  bindings: Readonly<Record<string, string>>;
}

/** What can be done before Redis and the model are there; undefined for wrangler, which bundles for itself. */
export async function bundleFor(runtime: Runtime, folder: string): Promise<string | undefined> {
  if (runtime !== 'workerd') return undefined;
  const path = await bundleGateway(join(folder, 'bundle'));
  // Else esbuild's own process, 100 MB, would stay for as long as we run.
  await stop();
  return path;
}

export async function gatewayCommand(plan: GatewayPlan, bundlePath: string | undefined): Promise<string[]> {
  if (bundlePath === undefined) return wranglerCommand(plan);
  const { folder, host, port, bindings } = plan;
  return writeWorkerdConfig({
    ...{ bundlePath, dataFolder: folder, port, bindings },
    host: host === '0.0.0.0' ? '*' : bracketed(host),
    // Wrangler reads them by itself.
    trustedCertificates: extraCertificates(process.env),
  });
}

function wranglerCommand({ folder, host, port, bindings }: GatewayPlan): string[] {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const variables = join(folder, 'wrangler.env');
  const lines = Object.entries(bindings).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  // A file that only its owner reads, since the bindings hold secrets and arguments are everybody's.
  writeFileSync(variables, `${lines.join('\n')}\n`, { mode: 0o600 });
  chmodSync(variables, 0o600);
  return [
    process.execPath,
    join(PROJECT, 'node_modules', 'wrangler', 'bin', 'wrangler.js'),
    'dev',
    // Where the bundler that wrangler.toml names is; and its configuration.
    ...['--cwd', PROJECT],
    ...['--ip', host === '*' ? '0.0.0.0' : host],
    ...['--port', String(port)],
    ...['--env-file', variables],
    ...['--persist-to', join(folder, 'wrangler')],
    ...['--log-level', 'log'],
    '--show-interactive-dev-session=false',
  ];
}

/** An IPv6 address needs brackets before a port. */
function bracketed(host: string): string {
  return host.includes(':') && !host.startsWith('[') ? `[${host}]` : host;
}

/** Where the gateway can be reached from this machine. */
export function gatewayUrl(host: string, port: number): string {
  const everywhere = host === '*' || host === '0.0.0.0' || host === '::';
  return `http://${everywhere ? '127.0.0.1' : bracketed(host)}:${port}`;
}
