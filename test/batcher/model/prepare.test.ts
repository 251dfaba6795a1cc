import { chmod, copyFile, cp, mkdir, readdir, readFile, rm, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { whyNoKernels } from '../../../batcher/engine/kernels/kernel-library.ts';
import { defaultCacheRoot } from '../../../batcher/model/cache-root.ts';
import { checkPrepared } from '../../../batcher/model/manifest.ts';
import { ModelError } from '../../../batcher/model/model-error.ts';
import { modelNameOf } from '../../../batcher/model/model-name.ts';
import { graphPathOf, openPrepared, type PreparedModel, prepareModel } from '../../../batcher/model/prepare.ts';
import { writeGguf } from './gguf-writer.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { TINY, tinyLlama } from './tiny-llama.ts';

async function tinyFile(): Promise<{ folder: string; path: string; cacheRoot: string }> {
  const folder = await temporaryFolder();
  const path = await writeGguf(join(folder, 'Tiny-Model.Q4_1.gguf'), tinyLlama({ other: 'Q4_1', embedding: 'Q8_0' }));
  return { folder, path, cacheRoot: join(folder, 'cache') };
}

const rebuilds = (): { reasons: string[]; onRebuild: (reason: string) => void } => {
  const reasons: string[] = [];
  return { reasons, onRebuild: reason => reasons.push(reason) };
};

/** Leaves size and time as they were: what only --verify can see. */
async function flipByteUnseen(path: string): Promise<void> {
  const { atime, mtime, mtimeMs } = await stat(path);
  const bytes = await readFile(path);
  bytes[100]! ^= 0xff;
  await writeFile(path, bytes);
  await utimes(path, atime, mtime);
  // Times are set in whole milliseconds here; record what there is.
  expect(Math.abs((await stat(path)).mtimeMs - mtimeMs)).toBeLessThan(1);
}

describe('preparing a model', () => {
  test('describes what it made', async () => {
    const { path, cacheRoot } = await tinyFile();
    const prepared = await prepareModel(path, { cacheRoot, kernels: 'stock' });
    expect(prepared.name).toBe('tiny-model');
    expect(prepared.directory.startsWith(join(cacheRoot, 'models', 'tiny-model-import-'))).toBe(true);
    expect(prepared.manifest).toMatchObject({
      name: 'tiny-model',
      weights: 'import',
      shape: {
        layers: TINY.layers,
        heads: TINY.heads,
        kvHeads: TINY.kvHeads,
        headDim: TINY.headDim,
        width: TINY.width,
        vocabSize: TINY.vocab,
        contextTokens: TINY.context,
      },
      endTokenIds: [256, 258],
      addBos: false,
    });
    for (const file of prepared.manifest.files) expect((await stat(join(prepared.directory, file.name))).size).toBe(file.byteLength);
    expect((await readdir(prepared.directory)).toSorted()).toEqual(['manifest.json', 'model.onnx', 'model.onnx.data', 'vocabulary.json']);
    expect(await openPrepared(prepared.directory)).toEqual(prepared);
  });

  test.runIf(whyNoKernels() === undefined)(
    'adds the kernels and a graph for a KV cache in half precision, where the host can',
    async () => {
      const { path, cacheRoot } = await tinyFile();
      const prepared = await prepareModel(path, { cacheRoot });
      expect(prepared.manifest).toMatchObject({ kernels: 'tiled', kvTypes: ['f32', 'f16'] });
      expect(prepared.kernelPath).toBe(join(prepared.directory, 'kernels.so'));
      expect(graphPathOf(prepared, 'f16')).toBe(join(prepared.directory, 'model.kv16.onnx'));
      const stock = await prepareModel(path, { cacheRoot, kernels: 'stock' });
      expect(stock.directory).not.toBe(prepared.directory);
      expect(() => graphPathOf(stock, 'f16')).toThrow(/needs the kernels/);
    },
  );

  test('a second time uses what is there', async () => {
    const { path, cacheRoot } = await tinyFile();
    const first = await prepareModel(path, { cacheRoot });
    const { mtimeMs } = await stat(join(first.directory, 'manifest.json'));
    const labels: string[] = [];
    const second = await prepareModel(path, { cacheRoot, onProgress: (_done, _total, label) => labels.push(label) });
    expect(second).toEqual(first);
    expect(labels).toEqual([]);
    expect((await stat(join(first.directory, 'manifest.json'))).mtimeMs).toBe(mtimeMs);
  });

  test('is the same content under another path, and another under other weights', async () => {
    const { path, folder, cacheRoot } = await tinyFile();
    const first = await prepareModel(path, { cacheRoot });
    await mkdir(join(folder, 'other'));
    await copyFile(path, join(folder, 'other', 'tiny-model.gguf'));
    expect((await prepareModel(join(folder, 'other', 'tiny-model.gguf'), { cacheRoot })).directory).toBe(first.directory);
    expect((await prepareModel(path, { cacheRoot, weights: 'f32' })).directory).not.toBe(first.directory);
  });

  test('another quality is another model, and contradicts a choice of weights', async () => {
    const { path, cacheRoot } = await tinyFile();
    const exact = await prepareModel(path, { cacheRoot, quality: 'exact' });
    expect(exact.directory).toBe((await prepareModel(path, { cacheRoot })).directory);
    const fast = await prepareModel(path, { cacheRoot, quality: 'fast' });
    expect(fast.directory.startsWith(join(cacheRoot, 'models', 'tiny-model-fast-'))).toBe(true);
    expect([exact.manifest.quality, fast.manifest.quality]).toEqual(['exact', 'fast']);
    await expect(prepareModel(path, { cacheRoot, quality: 'fast', weights: 'q8' })).rejects.toThrow(/--quality fast .*--weights q8/);
  });

  test('a changed file is another model', async () => {
    const { path, cacheRoot } = await tinyFile();
    const first = await prepareModel(path, { cacheRoot });
    await writeGguf(path, tinyLlama({ other: 'Q4_1', embedding: 'Q8_0', seed: 2 }));
    expect((await prepareModel(path, { cacheRoot })).directory).not.toBe(first.directory);
  });

  test('reports progress up to the whole', async () => {
    const { path, cacheRoot } = await tinyFile();
    const last = new Map<string, number>();
    await prepareModel(path, { cacheRoot, onProgress: (done, total, label) => last.set(label, done / total) });
    expect([...last]).toEqual([
      ['reading', 1],
      ['converting', 1],
      ['checking', 1],
    ]);
  });

  test('several at once make one folder and leave nothing else', async () => {
    const { path, cacheRoot } = await tinyFile();
    const all = await Promise.all(Array.from({ length: 4 }, () => prepareModel(path, { cacheRoot })));
    for (const prepared of all) expect(prepared).toEqual(all[0]);
    expect(await readdir(join(cacheRoot, 'models'))).toHaveLength(1);
  });

  test('a failure leaves no draft', async () => {
    const { path, cacheRoot } = await tinyFile();
    const broken = tinyLlama();
    broken.tensors.pop();
    await writeGguf(path, broken);
    await expect(prepareModel(path, { cacheRoot })).rejects.toThrow(ModelError);
    expect(await readdir(cacheRoot).catch(() => [])).not.toContain('models');
  });

  test('drafts of a dead process are cleared away', async () => {
    const { path, cacheRoot } = await tinyFile();
    const prepared = await prepareModel(path, { cacheRoot });
    await rm(prepared.directory, { recursive: true });
    const abandoned = join(cacheRoot, 'models', '.draft-00000000-1-left');
    await mkdir(abandoned);
    await utimes(abandoned, 0, 0);
    await prepareModel(path, { cacheRoot });
    expect(await readdir(join(cacheRoot, 'models'))).toHaveLength(1);
  });

  test('what an earlier version made of the model goes when nobody has used it for a month', async () => {
    const { path, cacheRoot } = await tinyFile();
    const { directory } = await prepareModel(path, { cacheRoot });
    const models = join(cacheRoot, 'models');
    const monthsAgo = new Date(Date.now() - 40 * 24 * 3_600_000);
    const [disused, used] = ['0123456789abcdef', 'fedcba9876543210'].map(digest => directory.replace(/[0-9a-f]+$/, digest));
    const another = join(models, 'another-import-0123456789abcdef');
    for (const folder of [disused!, used!, another]) await cp(directory, folder, { recursive: true });
    for (const folder of [directory, disused!, used!, another]) await utimes(folder, monthsAgo, monthsAgo);
    expect((await checkPrepared(used!)).state).toBe('intact');
    // A use counts where nothing is written, too.
    expect(await prepareModel(path, { cacheRoot })).toMatchObject({ directory });
    expect(await readdir(models)).toHaveLength(4);
    await rm(directory, { recursive: true });
    await prepareModel(path, { cacheRoot });
    expect((await readdir(models)).toSorted()).toEqual([directory, used!, another].map(folder => basename(folder)).toSorted());
  });

  test.each([
    ['a missing file', 'nothing.gguf', /nothing\.gguf: there is no such file/],
    ['a folder', '.', /is not a file/],
  ])('%s is said in one line', async (_, name, expected) => {
    const { folder, cacheRoot } = await tinyFile();
    const failed = prepareModel(join(folder, name), { cacheRoot });
    await expect(failed).rejects.toThrow(ModelError);
    await expect(failed).rejects.toThrow(expected);
  });

  test.skipIf(process.getuid?.() === 0)('a cache that cannot be written to is said in one line', async () => {
    const { path, folder } = await tinyFile();
    await mkdir(join(folder, 'closed'), { mode: 0o500 });
    await expect(prepareModel(path, { cacheRoot: join(folder, 'closed') })).rejects.toThrow(/could not be prepared/);
    await chmod(join(folder, 'closed'), 0o700);
  });
});

describe('a damaged cache', () => {
  async function prepared(): Promise<{ path: string; cacheRoot: string; first: PreparedModel }> {
    const { path, cacheRoot } = await tinyFile();
    return { path, cacheRoot, first: await prepareModel(path, { cacheRoot }) };
  }

  test.each<[string, (directory: string) => Promise<void>, RegExp]>([
    ['a short data file', directory => truncate(join(directory, 'model.onnx.data'), 1000), /model\.onnx\.data has 1000 bytes/],
    ['a missing graph', directory => rm(join(directory, 'model.onnx')), /model\.onnx is missing/],
    ['a missing manifest', directory => rm(join(directory, 'manifest.json')), /manifest\.json is missing/],
    ['a cut manifest', directory => truncate(join(directory, 'manifest.json'), 40), /manifest\.json cannot be read/],
    ['an edited manifest', directory => edit(directory, text => text.replace('"layers": 2', '"layers": 3')), /does not match its checksum/],
    ['other content', directory => writeFile(join(directory, 'model.onnx.data'), Buffer.alloc(0)), /model\.onnx\.data has 0 bytes/],
    ['changed content', directory => overwrite(join(directory, 'model.onnx.data')), /content of model\.onnx\.data has changed/],
  ])('%s is noticed and built anew', async (_, damage, reason) => {
    const { path, cacheRoot, first } = await prepared();
    await damage(first.directory);
    await expect(openPrepared(first.directory)).rejects.toThrow(reason);
    const { reasons, onRebuild } = rebuilds();
    const second = await prepareModel(path, { cacheRoot, onRebuild });
    expect(reasons.join()).toMatch(reason);
    expect(second.manifest.files.map(file => file.sha256)).toEqual(first.manifest.files.map(file => file.sha256));
    expect(await readdir(join(cacheRoot, 'models'))).toHaveLength(1);
  });

  test('a change that shows in neither size nor time is found by verify', async () => {
    const { path, cacheRoot, first } = await prepared();
    const data = join(first.directory, 'model.onnx.data');
    // Gives the file a time that utimes can set again exactly.
    await utimes(data, 1_700_000_000, 1_700_000_000);
    await prepareModel(path, { cacheRoot });
    await flipByteUnseen(data);
    const { reasons, onRebuild } = rebuilds();
    await prepareModel(path, { cacheRoot, onRebuild });
    expect(reasons).toEqual([]);
    await prepareModel(path, { cacheRoot, verify: true, onRebuild });
    expect(reasons.join()).toMatch(/content of model\.onnx\.data has changed/);
  });

  test('a copied cache is intact, and its new times are remembered', async () => {
    const { cacheRoot, first } = await prepared();
    const copy = first.directory.replace(cacheRoot, `${cacheRoot}-copy`);
    await cp(first.directory, copy, { recursive: true });
    const opened = await openPrepared(copy);
    expect(opened.manifest.files.map(file => file.sha256)).toEqual(first.manifest.files.map(file => file.sha256));
    for (const file of opened.manifest.files) expect((await stat(join(copy, file.name))).mtimeMs).toBe(file.modifiedAt);
    expect(await openPrepared(copy)).toEqual(opened);
  });

  test('an absent folder is said', async () => {
    await expect(openPrepared(join(await temporaryFolder(), 'none'))).rejects.toThrow(/no prepared model/);
  });
});

async function edit(directory: string, change: (text: string) => string): Promise<void> {
  const path = join(directory, 'manifest.json');
  const text = await readFile(path, 'utf8');
  expect(change(text)).not.toBe(text);
  await writeFile(path, change(text));
}

async function overwrite(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes[5000]! ^= 1;
  await writeFile(path, bytes);
}

describe('names', () => {
  test.each([
    ['SmolLM2-135M-Instruct.Q4_1.gguf', 'smollm2-135m-instruct'],
    ['/a/b/Llama-3.2-1B-Instruct-Q4_K_M.gguf', 'llama-3.2-1b-instruct'],
    ['Mistral_7B_v0.3.IQ3_XS.gguf', 'mistral_7b_v0.3'],
    ['model-f16.gguf', 'model'],
    ['model.BF16.gguf', 'model'],
    ['tinyllama-1.1b-chat-v1.0.Q8_0.GGUF', 'tinyllama-1.1b-chat-v1.0'],
    ['Qwen2.gguf', 'qwen2'],
    ['modell für alle.gguf', 'modell-f-r-alle'],
    ['.gguf', 'model'],
  ])('%s is %s', (path, name) => {
    expect(modelNameOf(path)).toBe(name);
  });

  test('the cache follows XDG, and ignores relative paths as it says', () => {
    expect(defaultCacheRoot({ XDG_CACHE_HOME: '/x' })).toBe('/x/sluice');
    expect(defaultCacheRoot({ XDG_CACHE_HOME: 'x' })).toMatch(/\.cache\/sluice$/);
    expect(defaultCacheRoot({})).toMatch(/\.cache\/sluice$/);
  });
});
