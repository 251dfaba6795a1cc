/**
 * Deploy: `npm run deploy [-- wrangler's options]`: says what is about to be deployed, whether it fits, and what it needs besides; then
 * wrangler deploys it. With `--dry-run` nothing leaves this machine.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { stop } from 'esbuild';
import { unstable_readConfig as readConfig } from 'wrangler';
import { bundleGateway } from '../deploy/bundle-gateway.ts';
import { runToEnd } from './supervisor/run-to-end.ts';
import { Screen } from './supervisor/screen.ts';

const PROJECT = join(import.meta.dirname, '..');
const CONFIGURATION = join(PROJECT, 'wrangler.toml');
const SECRETS = ['REDIS_URL', 'SLUICE_KEY_SECRET', 'SLUICE_ADMIN_KEY'];
/** Cloudflare's limits of a Worker, compressed: of a free account and of a paid one. */
const FREE_BYTES = 3 * 2 ** 20;
const PAID_BYTES = 10 * 2 ** 20;

/** What is read of wrangler's configuration; its own declarations lead to a package that it does not bring. */
interface Configuration {
  name: string;
  durable_objects: { bindings: { name: string; class_name: string }[] };
  migrations: { tag: string; new_sqlite_classes?: string[] }[];
}

const screen = new Screen();
process.exit(await main(process.argv.slice(2)));

async function main(options: string[]): Promise<number> {
  const bundle = readFileSync(await bundleGateway(join(PROJECT, 'dist', 'worker')));
  await stop();
  const config = readConfig({ config: CONFIGURATION }) as Configuration;
  const compressedBytes = gzipSync(bundle).length;
  screen.done(
    'Worker',
    `${config.name}: ${kibibytes(bundle.length)}, compressed ${kibibytes(compressedBytes)} of the ${limitOf(compressedBytes)}`,
  );
  screen.done('Bindings', config.durable_objects.bindings.map(({ name, class_name }) => `${name} → ${class_name}`).join(', '));
  for (const { tag, new_sqlite_classes = [] } of config.migrations)
    screen.done('Migration', `${tag}: new ${new_sqlite_classes.join(', ')}`);
  screen.done('Secrets', `${SECRETS.join(', ')}, each set once by: npx wrangler secret put NAME`);
  if (compressedBytes > PAID_BYTES) {
    screen.error('The Worker is larger than Cloudflare takes.');
    return 1;
  }
  return await runToEnd([process.execPath, join(PROJECT, 'node_modules', 'wrangler', 'bin', 'wrangler.js'), 'deploy', ...options], {
    folder: PROJECT,
    environment: { WRANGLER_SEND_METRICS: process.env.WRANGLER_SEND_METRICS ?? 'false' },
  });
}

function limitOf(bytes: number): string {
  return bytes <= FREE_BYTES ? `${kibibytes(FREE_BYTES)} that a free account has` : `${kibibytes(PAID_BYTES)} that a paid account has`;
}

function kibibytes(bytes: number): string {
  return `${Math.ceil(bytes / 1024).toLocaleString('en-US')} KiB`;
}
