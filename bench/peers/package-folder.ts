/** PackageFolder: a published package in the ignored folder .peers/, installed once; one that was cut off is begun anew. */
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BenchRun } from '../bench.ts';

export type PeerRun = Pick<BenchRun, 'progress' | 'children'>;

const PEERS = join(import.meta.dirname, '..', '..', '.peers');

/** What is made in a folder of its own, which is there only when it is whole. */
export async function peerFolder(name: string, make: (draft: string) => Promise<void>): Promise<string> {
  const folder = join(PEERS, name);
  if (existsSync(folder)) return folder;
  const draft = `${folder}.${process.pid}`;
  try {
    await mkdir(draft, { recursive: true });
    await make(draft);
    await rename(draft, folder).catch((error: unknown) => {
      // Another run was first.
      if (!existsSync(folder)) throw error;
    });
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  return folder;
}

/** From PyPI, for PYTHONPATH. */
export async function pipFolder(name: string, requirements: string | readonly string[], { progress, children }: PeerRun): Promise<string> {
  const all = [requirements].flat();
  return peerFolder(name, async draft => {
    progress(`installing ${all.join(', ')}, once`);
    await children.run('python3', ['-m', 'pip', 'install', '--quiet', '--no-input', '--target', draft, ...all]);
  });
}

/** For Python on such a folder, for a program that uses Hugging Face's libraries: it asks no hub, and what it caches goes to `cacheFolder`. */
export function offlinePython(folder: string, cacheFolder: string): NodeJS.ProcessEnv {
  const offline = { HF_HUB_OFFLINE: '1', HF_DATASETS_OFFLINE: '1', HF_HOME: cacheFolder };
  return { ...process.env, PYTHONPATH: folder, TOKENIZERS_PARALLELISM: 'false', ...offline };
}

export interface NpmManifest {
  dependencies: Record<string, string>;
  overrides?: Record<string, string>;
}

/** From npm, without its scripts: those would fetch or build what the packages have already. */
export async function npmFolder(
  name: string,
  { manifest, flags = [] }: { manifest: NpmManifest; flags?: readonly string[] },
  { progress, children }: PeerRun,
): Promise<string> {
  return peerFolder(name, async draft => {
    progress(
      `installing ${Object.entries(manifest.dependencies)
        .map(([dependency, version]) => `${dependency} ${version}`)
        .join(', ')}, once`,
    );
    await writeFile(join(draft, 'package.json'), JSON.stringify({ private: true, ...manifest }));
    const quiet = ['--silent', '--no-audit', '--no-fund', '--ignore-scripts'];
    await children.run('npm', ['install', ...quiet, ...flags, '--prefix', draft]);
  });
}
