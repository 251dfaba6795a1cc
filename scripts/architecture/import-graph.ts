/** ImportGraph: every source file of a project and what it imports, read from the import statements themselves. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix, relative, sep } from 'node:path';

export interface SourceImport {
  /** As written. */
  specifier: string;
  /** Path from the project's root for a relative import, undefined for a package. */
  file: string | undefined;
  /** Package name, `node:` module included, undefined for a relative import. */
  package: string | undefined;
  /** Erased before anything runs. */
  isTypeOnly: boolean;
}

export interface SourceFile {
  /** Path from the project's root, with `/`. */
  path: string;
  text: string;
  imports: SourceImport[];
}

const SOURCE = /\.(ts|mjs|js)$/;
const SKIPPED_FOLDERS: ReadonlySet<string> = new Set(['node_modules', 'dist']);

/** Statements that begin a line; a dynamic import may stand anywhere. */
const IMPORT = /^import\s+(?:(type)\s+)?(?:[^'"`;]*?\sfrom\s+)?['"]([^'"]+)['"]/gm;
const EXPORT = /^export\s+(?:(type)\s+)?(?:\*(?:\s+as\s+\w+)?|\{[^}]*\})\s*from\s+['"]([^'"]+)['"]/gm;
const DYNAMIC = /\bimport\(\s*()['"]([^'"]+)['"]/g;

/** All sources below the given folders of the root, folders that begin with a dot left out. */
export function readImportGraph(root: string, folders: readonly string[]): SourceFile[] {
  return folders.flatMap(folder => sourcesBelow(join(root, folder))).map(path => readSource(root, path));
}

function sourcesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return SKIPPED_FOLDERS.has(entry.name) || entry.name.startsWith('.') ? [] : sourcesBelow(path);
    return SOURCE.test(entry.name) ? [path] : [];
  });
}

function readSource(root: string, absolute: string): SourceFile {
  const path = relative(root, absolute).split(sep).join('/');
  const text = readFileSync(absolute, 'utf8');
  return { path, text, imports: importsOf(path, text) };
}

export function importsOf(path: string, text: string): SourceImport[] {
  const code = withoutComments(text);
  return [IMPORT, EXPORT, DYNAMIC].flatMap(pattern =>
    Array.from(code.matchAll(pattern), ([, type, specifier]) => {
      const written = specifier as string;
      const isRelative = written.startsWith('.');
      return {
        specifier: written,
        file: isRelative ? posix.normalize(posix.join(dirname(path), written)) : undefined,
        package: isRelative ? undefined : packageOf(written),
        isTypeOnly: type === 'type',
      };
    }),
  );
}

function packageOf(specifier: string): string {
  if (/^[a-z]+:/.test(specifier)) return specifier;
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}

/** Only comments that begin a line: what looks like one within a line may be part of a string, and no import follows it. */
function withoutComments(text: string): string {
  return text.replace(/^\s*\/\*[\s\S]*?\*\//gm, '').replace(/^\s*\/\/.*$/gm, '');
}
