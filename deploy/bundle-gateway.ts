/** BundleGateway: the Worker as one ES module that raw workerd loads; the same source that wrangler bundles for itself. */
import { mkdir } from 'node:fs/promises';
import { builtinModules } from 'node:module';
import { join } from 'node:path';
import { build, type Plugin } from 'esbuild';
import { docsReader, writeDocsReader } from './docs-reader.ts';
import { playgroundPage } from './playground-page.ts';

const ENTRY = join(import.meta.dirname, '..', 'gateway', 'app.ts');

/** Longest first, so that `fs/promises` is not taken for `fs`. */
const BUILTIN = new RegExp(
  `^(?:node:)?(${builtinModules
    .filter(name => !name.startsWith('_') && !name.startsWith('node:'))
    .sort((a, b) => b.length - a.length)
    .join('|')})$`,
);

/**
 * Packages name Node's modules without the `node:` that workerd wants, and CommonJS ones `require` them, which an ES module cannot.
 * An import goes out as `node:x`; a require becomes a module that imports `node:x` and hands on its default export.
 */
const nodeBuiltins: Plugin = {
  name: 'node-builtins',
  setup(plugin) {
    plugin.onResolve({ filter: BUILTIN }, ({ path, kind }) => {
      const name = `node:${path.replace(/^node:/, '')}`;
      return kind === 'require-call' ? { path: name, namespace: 'required-builtin' } : { path: name, external: true };
    });
    plugin.onLoad({ filter: /.*/, namespace: 'required-builtin' }, ({ path }) => ({
      contents: `import builtin from ${JSON.stringify(path)};\nmodule.exports = builtin;`,
      loader: 'js',
    }));
  },
};

/** Writes `gateway.js` and what it imports when it runs to the folder, made when missing, and tells its path. Not minified: stack traces stay readable. Throws with esbuild's messages. */
export async function bundleGateway(outputFolder: string): Promise<string> {
  await mkdir(outputFolder, { recursive: true });
  const outfile = join(outputFolder, 'gateway.js');
  await writeDocsReader(outputFolder);
  await build({
    entryPoints: [ENTRY],
    outfile,
    bundle: true,
    format: 'esm',
    target: 'es2024',
    // Not `node`: that would pull in variants of packages that reach for what workerd lacks.
    platform: 'neutral',
    mainFields: ['module', 'main'],
    conditions: ['workerd', 'worker', 'import'],
    external: ['cloudflare:*'],
    plugins: [nodeBuiltins, playgroundPage, docsReader],
    // The rooms' tsconfig files are for the compiler only.
    tsconfigRaw: '{}',
    logLevel: 'silent',
  });
  return outfile;
}
