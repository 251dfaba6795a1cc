import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDataFolder } from '../../scripts/supervisor/data-folder.ts';
import { developmentKey } from '../../scripts/supervisor/development-key.ts';
import { claimPort, freePort } from '../../scripts/supervisor/free-port.ts';
import { StartError } from '../../scripts/supervisor/start-error.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-data-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('the data folder', () => {
  it('is made with its parts, for its owner only', () => {
    const data = openDataFolder(join(folder, 'deep', 'down'));
    for (const path of Object.values(data)) expect(statSync(path).mode & 0o777).toBe(0o700);
  });

  it('that cannot be made is a clear line', () => {
    writeFileSync(join(folder, 'file'), '');
    expect(() => openDataFolder(join(folder, 'file', 'data'))).toThrow(StartError);
    expect(() => openDataFolder(join(folder, 'file', 'data'))).toThrow(/cannot be used: .*--data/);
  });
});

describe('the development key', () => {
  it('is the same at every start, another in another folder, and its owner’s only', () => {
    const key = developmentKey(folder);
    expect(key).toMatch(/^sk-sluice-dev-[\w-]{32}$/);
    expect(developmentKey(folder)).toBe(key);
    expect(developmentKey(openDataFolder(join(folder, 'other')).path)).not.toBe(key);
    expect(statSync(join(folder, 'development-key')).mode & 0o777).toBe(0o600);
  });

  it('is made anew when the file is damaged', () => {
    writeFileSync(join(folder, 'development-key'), 'sk-', { mode: 0o644 });
    expect(developmentKey(folder)).toMatch(/^sk-sluice-dev-[\w-]{32}$/);
    expect(statSync(join(folder, 'development-key')).mode & 0o777).toBe(0o600);
  });
});

describe('a port', () => {
  it('that is taken is a clear line; 0 is a free one', async () => {
    const server = createServer();
    const port = await freePort();
    await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve));
    await expect(claimPort(port, '127.0.0.1')).rejects.toThrow(`Port ${port} is taken`);
    await expect(claimPort(port, '*')).rejects.toThrow(`Port ${port} is taken`);
    expect(await claimPort(0, '127.0.0.1')).toBeGreaterThan(0);
    server.close();
  });

  it('on an address that is not ours is a clear line', async () => {
    await expect(claimPort(0, '192.0.2.1')).rejects.toThrow('--host 192.0.2.1 is no address of this machine');
  });
});
