/** Bundle: `node scripts/run.mjs bundle`: the gateway as one module, where wrangler.toml looks for it; wrangler runs this before all else. */
import { join, relative } from 'node:path';
import { stop } from 'esbuild';
import { bundleGateway } from '../deploy/bundle-gateway.ts';

const PROJECT = join(import.meta.dirname, '..');

const path = await bundleGateway(join(PROJECT, 'dist', 'worker'));
await stop();
process.stdout.write(`The gateway is in ${relative(PROJECT, path)}.\n`);
