/**
 * PlaygroundPage: an import of `page.html` becomes one document with its styles and its script in it, so that the page is one request and
 * its content security policy can name both by their hashes.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { build, type Plugin } from 'esbuild';

const FOLDER = join(import.meta.dirname, '..', 'gateway', 'playground');

export const playgroundPage: Plugin = {
  name: 'playground-page',
  setup(plugin) {
    plugin.onLoad({ filter: /[\\/]playground[\\/]page\.html$/ }, async () => {
      const [page, style, script] = await Promise.all([readFile(join(FOLDER, 'page.html'), 'utf8'), pageStyle(), pageScript()]);
      const html = fill(fill(page, '<style>', style), '<script type="module">', script);
      const names = { html, htmlHash: hash(html), styleHash: hash(style), scriptHash: hash(script) };
      return {
        contents: Object.entries(names)
          .map(([name, value]) => `export const ${name} = ${JSON.stringify(value)};`)
          .join('\n'),
        loader: 'js',
        watchFiles: ['page.html', 'page.css'].map(name => join(FOLDER, name)),
        watchDirs: [FOLDER],
      };
    });
  },
};

function pageStyle(): Promise<string> {
  return readFile(join(FOLDER, 'page.css'), 'utf8');
}

/** For the browsers of the last two years. Not minified: who looks at the source finds something to read. */
async function pageScript(): Promise<string> {
  const result = await build({
    entryPoints: [join(FOLDER, 'page.ts')],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'es2022',
    tsconfigRaw: '{}',
    logLevel: 'silent',
  });
  const [output] = result.outputFiles;
  if (output === undefined) throw new Error('The playground has no script.');
  // The one text that would end the element early.
  return output.text.replaceAll('</script', '<\\/script');
}

/** Puts the text behind the tag that opens its element. */
function fill(page: string, tag: string, text: string): string {
  const [before, after, ...more] = page.split(tag);
  if (before === undefined || after === undefined || more.length > 0) throw new Error(`page.html must have exactly one ${tag}.`);
  return `${before}${tag}${text}${after}`;
}

function hash(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
