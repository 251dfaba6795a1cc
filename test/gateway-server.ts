/** GatewayServer: the gateway on raw workerd for one test file, built from the source as it is. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundleGateway } from '../deploy/bundle-gateway.ts';
import { writeWorkerdConfig } from '../deploy/workerd-config.ts';
import { startChild } from './child.ts';
import { freePort } from './free-port.ts';

export interface GatewayServer {
  url: string;
  port: number;
  /** The development key. */
  key: string;
  pid: number;
  /** What it has logged. */
  output(): string;
  stop(): Promise<void>;
}

export interface GatewayServerOptions {
  redisUrl: string;
  /** More settings, by their names in gateway/env.ts. */
  bindings?: Record<string, string>;
}

export async function startGateway(options: GatewayServerOptions): Promise<GatewayServer> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-gateway-'));
  const key = `sk-sluice-dev-${randomBytes(16).toString('hex')}`;
  const port = await freePort();
  const [command, ...args] = await writeWorkerdConfig({
    bundlePath: await bundleGateway(folder),
    dataFolder: folder,
    port,
    bindings: { REDIS_URL: options.redisUrl, SLUICE_DEV_KEY: key, ...options.bindings },
  });
  const child = startChild(command!, args);
  const url = `http://127.0.0.1:${port}`;
  await child.until(() => fetch(`${url}/health`));
  return {
    url,
    port,
    key,
    pid: child.pid,
    output: () => child.output(),
    async stop() {
      await child.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
