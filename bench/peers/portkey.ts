/** Portkey: the gateway of npm's @portkey-ai/gateway in the ignored folder .peers/, one process, in front of an OpenAI-compatible upstream. */
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BenchRun } from '../bench.ts';
import type { Peer } from '../gateway-side.ts';

const VERSION = '1.15.2';
/** With a later one, which its range allows, it cannot add headers to a streamed reply, and answers every stream with an error. */
const NODE_SERVER_VERSION = '1.3.3';

export async function installPortkey({ progress, children }: Pick<BenchRun, 'progress' | 'children'>): Promise<Peer> {
  const folder = join(import.meta.dirname, '..', '..', '.peers', `portkey-${VERSION}`);
  if (!existsSync(folder)) {
    progress(`Portkey: installing @portkey-ai/gateway ${VERSION}`);
    const draft = `${folder}.${process.pid}`;
    await mkdir(draft, { recursive: true });
    const manifest = {
      private: true,
      dependencies: { '@portkey-ai/gateway': VERSION },
      overrides: { '@hono/node-server': NODE_SERVER_VERSION },
    };
    await writeFile(join(draft, 'package.json'), JSON.stringify(manifest));
    const quiet = ['--silent', '--no-audit', '--no-fund', '--ignore-scripts', '--legacy-peer-deps'];
    await children.run('npm', ['install', ...quiet, '--prefix', draft]);
    await rm(folder, { recursive: true, force: true });
    await rename(draft, folder);
  }
  return {
    name: 'Portkey',
    version: VERSION,
    command: ({ port }) => [
      process.execPath,
      join(folder, 'node_modules', '@portkey-ai', 'gateway', 'build', 'start-server.js'),
      `--port=${port}`,
      '--headless',
    ],
    headers: ({ upstreamPort }) => ({
      authorization: 'Bearer none',
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': `http://127.0.0.1:${upstreamPort}/v1`,
    }),
    // It has no keys of its own.
    refusedHeaders: undefined,
    environment: {},
  };
}
