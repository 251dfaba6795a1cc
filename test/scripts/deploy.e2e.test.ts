/** `npm run deploy -- --dry-run`: what would be deployed is whole, fits, and is said. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { bundleGateway } from '../../deploy/bundle-gateway.ts';
import { DOCS_READER_FILE } from '../../deploy/docs-reader.ts';
import { DURABLE_OBJECTS } from '../../deploy/worker-manifest.ts';

const RUN = join(import.meta.dirname, '../../scripts/run.mjs');

test('names bindings, migrations, secrets and size, and uploads what raw workerd runs', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-deploy-'));
  try {
    const { stdout } = await promisify(execFile)('node', [RUN, 'deploy', '--dry-run', '--outdir', join(folder, 'upload')]);
    for (const { binding, className } of DURABLE_OBJECTS) {
      expect(stdout).toContain(`${binding} → ${className}`);
      // As wrangler itself says it.
      expect(stdout).toMatch(new RegExp(`^env\\.${binding} \\(${className}\\) +Durable Object`, 'm'));
    }
    expect(stdout).toMatch(/Migration +v1: new Broker, Tenant, Directory$/m);
    expect(stdout).toMatch(/Secrets +REDIS_URL, SLUICE_KEY_SECRET, SLUICE_ADMIN_KEY/);
    expect(stdout).toMatch(/Worker +sluice: [\d,]+ KiB, compressed [\d,]+ KiB of 3,072 KiB$/m);
    expect(stdout).not.toContain('larger than');
    // A module of its own.
    expect((await stat(join(folder, 'upload', DOCS_READER_FILE))).size).toBeGreaterThan(1_000_000);
    const uploaded = await readFile(join(folder, 'upload', 'gateway.js'), 'utf8');
    const bundled = await readFile(await bundleGateway(join(folder, 'bundle')), 'utf8');
    expect(uploaded.replace(/\n\/\/# sourceMappingURL=.*\n?$/, '').trimEnd()).toBe(bundled.trimEnd());
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('an option that wrangler does not know is an error', async () => {
  await expect(promisify(execFile)('node', [RUN, 'deploy', '--dry-run', '--no-such-option'])).rejects.toMatchObject({ code: 1 });
});
