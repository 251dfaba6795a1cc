/**
 * Deploy: `npm run deploy [-- wrangler's options]`: says what is about to be deployed, whether it fits, and what it needs besides; then
 * wrangler deploys it. With `--dry-run` nothing leaves this machine.
 */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { stop } from 'esbuild';
import { unstable_readConfig as readConfig } from 'wrangler';
import { bundleGateway } from '../deploy/bundle-gateway.ts';
import { DOCS_READER_FILE } from '../deploy/docs-reader.ts';
import { runToEnd } from './supervisor/run-to-end.ts';
import { Screen } from './supervisor/screen.ts';

const PROJECT = join(import.meta.dirname, '..');
const CONFIGURATION = join(PROJECT, 'wrangler.toml');
const SECRETS = ['REDIS_URL', 'SLUICE_KEY_SECRET', 'SLUICE_ADMIN_KEY'];
/** Compressed; what Cloudflare takes of any account, a free one included. */
const LIMIT_BYTES = 3 * 2 ** 20;

/** What is read of wrangler's configuration; its own declarations lead to a package that it does not bring. */
interface Configuration {
  name: string;
  durable_objects: { bindings: { name: string; class_name: string }[] };
  migrations: { tag: string; new_sqlite_classes?: string[] }[];
}

const screen = new Screen();
process.exit(await main(process.argv.slice(2)));

async function main(options: string[]): Promise<number> {
  const bundlePath = await bundleGateway(join(PROJECT, 'dist', 'worker'));
  const [bundle, reader] = [readFileSync(bundlePath), readFileSync(join(dirname(bundlePath), DOCS_READER_FILE))];
  await stop();
  const config = readConfig({ config: CONFIGURATION }) as Configuration;
  // The reader is compressed already.
  const compressedBytes = gzipSync(bundle).length + reader.length;
  const size = `${kibibytes(bundle.length + reader.length)}, compressed ${kibibytes(compressedBytes)} of ${kibibytes(LIMIT_BYTES)}`;
  screen.done('Worker', `${config.name}: ${size}`);
  screen.done('Bindings', config.durable_objects.bindings.map(({ name, class_name }) => `${name} → ${class_name}`).join(', '));
  for (const { tag, new_sqlite_classes = [] } of config.migrations)
    screen.done('Migration', `${tag}: new ${new_sqlite_classes.join(', ')}`);
  screen.done('Secrets', `${SECRETS.join(', ')}, each set once by: npx wrangler secret put NAME`);
  if (compressedBytes > LIMIT_BYTES) screen.warn('The Worker is larger than a free account may have.');
  return await runToEnd([process.execPath, join(PROJECT, 'node_modules', 'wrangler', 'bin', 'wrangler.js'), 'deploy', ...options], {
    folder: PROJECT,
    environment: { WRANGLER_SEND_METRICS: process.env.WRANGLER_SEND_METRICS ?? 'false' },
  });
}

function kibibytes(bytes: number): string {
  return `${Math.ceil(bytes / 1024).toLocaleString('en-US')} KiB`;
}
