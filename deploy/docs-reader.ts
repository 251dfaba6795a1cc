/**
 * DocsReader: Scalar's reader of API descriptions as one compressed file beside the Worker's module, which imports it when /docs is first asked
 * for: a page that needs nothing from elsewhere, for no part of the Worker's start.
 *
 * It is taken out of @scalar/fastify-api-reference, which holds it as one text and has few dependencies; @scalar/api-reference, of which it is
 * built, has hundreds.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { runInNewContext } from 'node:vm';
import { gzip } from 'node:zlib';
import type { Plugin } from 'esbuild';

/** Beside the module that imports it; both runtimes take `.bin` for bytes. */
export const DOCS_READER_FILE = 'docs-reader.bin';

const PACKAGE = '@scalar/fastify-api-reference';
const LITERAL = /^var standalone_default = ("(?:[^"\\\n]|\\.)*");$/m;

/** Leaves the import to the runtime. */
export const docsReader: Plugin = {
  name: 'docs-reader',
  setup(plugin) {
    plugin.onResolve({ filter: /^sluice-docs-reader$/ }, () => ({ path: `./${DOCS_READER_FILE}`, external: true }));
  },
};

/** Throws when the package is not of the form that is known. */
export async function writeDocsReader(folder: string): Promise<void> {
  const script = readerIn(await readFile(createRequire(import.meta.url).resolve(PACKAGE), 'utf8'));
  await writeFile(join(folder, DOCS_READER_FILE), await promisify(gzip)(script));
}

export function readerIn(module: string): string {
  const literal = LITERAL.exec(module)?.[1];
  // Nothing but a string literal gets here, so nothing runs.
  const script: unknown = literal === undefined ? undefined : runInNewContext(literal);
  if (typeof script !== 'string') throw new Error(`${PACKAGE} holds the reader in another form than it did.`);
  return script;
}
