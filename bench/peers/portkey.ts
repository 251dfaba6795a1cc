/** Portkey: the gateway of npm's @portkey-ai/gateway in the ignored folder .peers/, one process, in front of an OpenAI-compatible upstream. */
import { join } from 'node:path';
import type { Peer } from '../gateway-side.ts';
import { npmFolder, type PeerRun } from './package-folder.ts';

const VERSION = '1.15.2';
/** With a later one, which its range allows, it cannot add headers to a streamed reply, and answers every stream with an error. */
const NODE_SERVER_VERSION = '1.3.3';

export async function installPortkey(run: PeerRun): Promise<Peer> {
  const manifest = {
    dependencies: { '@portkey-ai/gateway': VERSION },
    overrides: { '@hono/node-server': NODE_SERVER_VERSION },
  };
  const folder = await npmFolder(`portkey-${VERSION}`, { manifest, flags: ['--legacy-peer-deps'] }, run);
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
