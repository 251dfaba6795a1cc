/** Rules: which file may import what, and how files are named; each breach is one line that names the file and the rule. */
import { basename } from 'node:path';
import type { SourceFile, SourceImport } from './import-graph.ts';

/** Each room and the rooms it may import from besides itself. Whatever is not listed may not be. */
const ROOMS: Readonly<Record<string, readonly string[]>> = {
  shared: [],
  gateway: ['shared'],
  batcher: ['shared'],
  deploy: ['shared'],
  scripts: ['shared', 'batcher', 'deploy'],
  planner: ['shared', 'batcher'],
  bench: ['shared', 'batcher', 'deploy', 'scripts', 'planner'],
  test: ['shared', 'gateway', 'batcher', 'deploy', 'scripts', 'planner', 'bench'],
};

export const ROOM_NAMES = Object.keys(ROOMS);

/** The shared room runs in a Worker and in Node alike. */
const SHARED_PACKAGES: ReadonlySet<string> = new Set(['zod']);

/** The files of the batcher that know Redis. */
const BATCHER_REDIS_FILES: ReadonlySet<string> = new Set(
  ['intake', 'queue-worker', 'queue-heads', 'own-queues', 'outbox', 'prefix-outbox', 'heartbeat', 'redis'].map(
    name => `batcher/${name}.ts`,
  ),
);
/** What the gateway serves as a page; it runs in browsers. */
const PLAYGROUND = 'gateway/playground/';
const REDIS_PACKAGES: ReadonlySet<string> = new Set(['bullmq', 'ioredis']);

/** A name that says nothing of what is inside. */
const DRAWER_NAME = /^(utils?|helpers?|common|misc|types?|constants?|index)$/;
const KEBAB_CASE = /^[a-z0-9]+(-[a-z0-9]+)*$/;

/** `/** Name: …` at the very top, under a `#!` line at most: a short name, then the sentence. */
const HEADER = /^(#![^\n]*\n)?\/\*\*\s*(\*\s*)?[^\s:.*][^:.*\n]{0,60}: \S/;

export function findBreaches(graph: readonly SourceFile[]): string[] {
  const paths = new Set(graph.map(file => file.path));
  return [
    ...graph.flatMap(file => file.imports.flatMap(each => importBreaches(file, each, paths))),
    ...graph.flatMap(nameBreaches),
    ...graph.flatMap(headerBreaches),
    ...ffiBreaches(graph),
    ...cycles(graph),
  ];
}

function importBreaches(file: SourceFile, imported: SourceImport, paths: ReadonlySet<string>): string[] {
  const breach = (rule: string) => `${file.path} imports ${imported.specifier}: ${rule}`;
  return imported.file === undefined
    ? packageRules(file.path, imported.package ?? '').map(breach)
    : fileRules(file.path, { target: imported.file, isTypeOnly: imported.isTypeOnly, paths }).map(breach);
}

function packageRules(path: string, name: string): string[] {
  const rules: string[] = [];
  if (roomOf(path) === 'shared' && !SHARED_PACKAGES.has(name)) rules.push('the shared room knows neither Node nor Workers');
  if (roomOf(path) === 'batcher' && REDIS_PACKAGES.has(name) && !BATCHER_REDIS_FILES.has(path)) {
    rules.push('only intake, outbox, heartbeat and redis know Redis');
  }
  if (path.startsWith('batcher/scheduler/')) rules.push('the scheduler is pure');
  if (path.startsWith(PLAYGROUND)) rules.push('the playground is whole by itself');
  return rules;
}

function fileRules(path: string, imported: { target: string; isTypeOnly: boolean; paths: ReadonlySet<string> }): string[] {
  const { target, isTypeOnly, paths } = imported;
  const rules: string[] = [];
  const from = roomOf(path);
  const to = roomOf(target);
  if (to !== from && !(ROOMS[from] ?? []).includes(to)) rules.push(to === 'test' ? 'nothing imports test' : `${from} may not import ${to}`);
  // Of the scheduler's neighbours only the block store is state that it plans with; the engine's seam gives it types of plain data.
  const isSeam = target === 'batcher/engine/engine.ts' && isTypeOnly;
  if (path.startsWith('batcher/scheduler/') && !isSeam && !/^(batcher\/(scheduler|kv)|shared)\//.test(target)) {
    rules.push('the scheduler sees no tensor, no text and no Redis');
  }
  if (path.startsWith('batcher/engine/') && /^batcher\/scheduler\/|^shared\/job\.ts$/.test(target))
    rules.push('the engine sees no priority');
  if (from === 'gateway') rules.push(...playgroundRules(path, imported));
  if (to in ROOMS && !paths.has(target) && !paths.has(declarationOf(target))) rules.push('there is no such file');
  return rules;
}

/** What runs in a browser, and what runs in a Worker: the one takes nothing of the other but the whole page. */
function playgroundRules(path: string, { target, isTypeOnly }: { target: string; isTypeOnly: boolean }): string[] {
  const isInside = path.startsWith(PLAYGROUND);
  if (isInside && !target.startsWith(PLAYGROUND) && !isTypeOnly) return ['the playground is whole by itself'];
  return !isInside && target.startsWith(PLAYGROUND) && target !== `${PLAYGROUND}page.html` ? ['the Worker knows only the whole page'] : [];
}

/** Of a file that is no source, as the compiler wants it: `page.html` is described by `page.d.html.ts`. */
function declarationOf(path: string): string {
  return path.replace(/\.(\w+)$/, '.d.$1.ts');
}

function nameBreaches({ path }: SourceFile): string[] {
  const name = (basename(path).split('.')[0] ?? '').toLowerCase();
  if (DRAWER_NAME.test(name)) return [`${path}: the name says nothing of what is inside`];
  return KEBAB_CASE.test(basename(path).split('.')[0] ?? '') ? [] : [`${path}: file names are in kebab-case`];
}

function headerBreaches({ path, text }: SourceFile): string[] {
  // What a test is about is said by its file's name and its cases.
  return roomOf(path) === 'test' || HEADER.test(text) ? [] : [`${path}: it does not open with /** Name: what it owns … */`];
}

function ffiBreaches(graph: readonly SourceFile[]): string[] {
  const files = graph.filter(file => file.imports.some(imported => imported.package === 'koffi')).map(file => file.path);
  return files.length > 1 ? [`${files.join(', ')}: only one file knows koffi`] : [];
}

/** Circles of imports that are there at run time; a circle of types alone is erased. One line a circle. */
function cycles(graph: readonly SourceFile[]): string[] {
  const targets = new Map(
    graph.map(file => [
      file.path,
      file.imports.filter(each => !each.isTypeOnly).flatMap(each => (each.file === undefined ? [] : [each.file])),
    ]),
  );
  const state = new Map<string, 'open' | 'done'>();
  const trail: string[] = [];
  const found: string[] = [];
  const visit = (path: string): void => {
    if (state.get(path) === 'done') return;
    if (state.get(path) === 'open') {
      found.push(`circular import: ${[...trail.slice(trail.indexOf(path)), path].join(' → ')}`);
      return;
    }
    state.set(path, 'open');
    trail.push(path);
    for (const target of targets.get(path) ?? []) visit(target);
    trail.pop();
    state.set(path, 'done');
  };
  for (const path of targets.keys()) visit(path);
  return found;
}

function roomOf(path: string): string {
  return path.split('/')[0] ?? '';
}
