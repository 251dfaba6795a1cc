/** GatewayServer: the gateway for one test file, on raw workerd unless it says otherwise, built from the source as it is. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundleGateway } from '../deploy/bundle-gateway.ts';
import { gatewayCommand } from '../scripts/supervisor/gateway-command.ts';
import type { Runtime } from '../scripts/supervisor/start-options.ts';
import { startChild } from './child.ts';
import { freePort } from './free-port.ts';

export interface GatewayServer {
  url: string;
  port: number;
  /** The development key. */
  key: string;
  /** What its issued keys are made with. */
  keySecret: string;
  /** Where its objects keep their state. */
  objectFolder: string;
  pid: number;
  /** What it has logged since it was last started. */
  output(): string;
  /** Ends it without a word, as a crash would. */
  kill(): Promise<void>;
  /** Starts it again on the same port and data, perhaps with other settings. */
  revive(bindings?: Record<string, string>): Promise<void>;
  /** Both. */
  restart(bindings?: Record<string, string>): Promise<void>;
  stop(): Promise<void>;
}

export interface GatewayServerOptions {
  redisUrl: string;
  /** More settings, by their names in gateway/env.ts. */
  bindings?: Record<string, string>;
  runtime?: Runtime;
}

export async function startGateway(options: GatewayServerOptions): Promise<GatewayServer> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-gateway-'));
  const key = `sk-sluice-dev-${randomBytes(16).toString('hex')}`;
  const port = await freePort();
  const keySecret = randomBytes(24).toString('base64url');
  const { runtime = 'workerd' } = options;
  // Wrangler has it made for itself.
  const bundlePath = runtime === 'workerd' ? await bundleGateway(folder) : undefined;
  const url = `http://127.0.0.1:${port}`;
  let bindings = { REDIS_URL: options.redisUrl, SLUICE_DEV_KEY: key, SLUICE_KEY_SECRET: keySecret, ...options.bindings };
  const start = async () => {
    const [command, ...args] = await gatewayCommand({ runtime, folder, host: '127.0.0.1', port, bindings }, bundlePath);
    const child = startChild(command!, args, { WRANGLER_SEND_METRICS: 'false' });
    await child.until(() => fetch(`${url}/health`));
    return child;
  };
  let child = await start();
  const kill = async () => {
    child.kill('SIGKILL');
    await child.stop();
  };
  const revive = async (more: Record<string, string> = {}) => {
    bindings = { ...bindings, ...more };
    child = await start();
  };
  return {
    url,
    port,
    key,
    keySecret,
    objectFolder: join(folder, 'objects'),
    get pid() {
      return child.pid;
    },
    output: () => child.output(),
    kill,
    revive,
    async restart(more) {
      await kill();
      await revive(more);
    },
    async stop() {
      await child.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
