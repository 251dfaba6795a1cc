/** Architecture: the project's own import graph keeps every rule, and each rule is shown to catch a tree that breaks it. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { importsOf, readImportGraph } from '../scripts/architecture/import-graph.ts';
import { findBreaches, ROOM_NAMES } from '../scripts/architecture/rules.ts';

const PROJECT = join(import.meta.dirname, '..');
/** Spelled apart, so that this file is not taken to import what its examples do. */
const LATE = 'import';

describe('the project', () => {
  const graph = readImportGraph(PROJECT, ROOM_NAMES);

  it('keeps every rule', () => {
    expect(findBreaches(graph)).toEqual([]);
  });

  it('was really read', () => {
    for (const room of ROOM_NAMES.filter(name => name !== 'bench')) expect(graph.some(file => file.path.startsWith(`${room}/`))).toBe(true);
    expect(graph.flatMap(file => file.imports).length).toBeGreaterThan(graph.length);
    expect(graph.find(file => file.path === 'test/architecture.test.ts')?.imports.map(each => each.file ?? each.package)).toContain(
      'scripts/architecture/rules.ts',
    );
  });
});

describe('import statements', () => {
  const cases: [statement: string, target: string, isTypeOnly: boolean][] = [
    ["import a from './a.ts';", 'room/a.ts', false],
    ["import type { A } from '../other/a.ts';", 'other/a.ts', true],
    ["import {\n  a,\n  b,\n} from './many-lines.ts';", 'room/many-lines.ts', false],
    ["import './side-effect.ts';", 'room/side-effect.ts', false],
    ["export { a } from './again.ts';", 'room/again.ts', false],
    ["export * from './all.ts';", 'room/all.ts', false],
    [`const a = await ${LATE}('./late.ts');`, 'room/late.ts', false],
    ["import { x } from '@scope/package/part';", '@scope/package', false],
    ["import * as fs from 'node:fs';", 'node:fs', false],
  ];

  it.each(cases)('%s', (statement, target, isTypeOnly) => {
    expect(importsOf('room/file.ts', statement).map(each => [each.file ?? each.package, each.isTypeOnly])).toEqual([[target, isTypeOnly]]);
  });

  it('in comments and strings are none', () => {
    expect(
      importsOf('room/file.ts', "/**\nimport a from './a.ts';\n*/\n// import b from './b.ts';\nconst c = \"import c from './c.ts'\";"),
    ).toEqual([]);
  });
});

describe('a tree that breaks a rule is caught:', () => {
  const folders: string[] = [];
  afterEach(() => {
    for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
  });

  /** A small sound project with some files replaced or added. */
  function breachesOf(files: Record<string, string>): string[] {
    const root = mkdtempSync(join(tmpdir(), 'sluice-architecture-'));
    folders.push(root);
    const sound: Record<string, string> = {
      'shared/job.ts': "import { z } from 'zod';",
      'gateway/app.ts': "import '../shared/job.ts';\nimport './playground/page.html';",
      'gateway/playground/page.ts': "import type { Job } from '../../shared/job.ts';",
      'gateway/playground/page.d.html.ts': '',
      'batcher/main.ts': "import '../shared/job.ts';\nimport './intake.ts';\nimport './engine/ort.ts';\nimport './scheduler/scheduler.ts';",
      'batcher/intake.ts': "import { Worker } from 'bullmq';",
      'batcher/text/detokenizer.ts': '',
      'batcher/engine/ort.ts': "import koffi from 'koffi';",
      'batcher/scheduler/scheduler.ts': "import type { Job } from '../../shared/job.ts';",
      'deploy/bundle.ts': "import '../shared/job.ts';",
      'scripts/start.ts': "import '../batcher/main.ts';\nimport '../deploy/bundle.ts';",
      'planner/fleet.ts': "import '../batcher/scheduler/scheduler.ts';",
      'bench/engine.ts': "import '../batcher/engine/ort.ts';\nimport '../planner/fleet.ts';",
      'test/start.test.ts': "import '../scripts/start.ts';",
    };
    for (const [path, text] of Object.entries({ ...sound, ...files })) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text.startsWith('#') ? text.slice(1) : `/** Part: what it owns. */\n${text}\n`);
    }
    return findBreaches(readImportGraph(root, ROOM_NAMES));
  }

  it('the sound tree has no breach', () => {
    expect(breachesOf({})).toEqual([]);
  });

  const broken: [what: string, path: string, text: string, rule: RegExp][] = [
    ['shared imports a room', 'shared/keys.ts', "import '../batcher/main.ts';", /^shared\/keys\.ts .*shared may not import batcher/],
    ['shared imports Node', 'shared/keys.ts', "import { join } from 'node:path';", /^shared\/keys\.ts .*neither Node nor Workers/],
    ['gateway imports batcher', 'gateway/routes/chat.ts', "import '../../batcher/main.ts';", /gateway may not import batcher/],
    ['batcher imports gateway', 'batcher/loop.ts', "import type { A } from '../gateway/app.ts';", /batcher may not import gateway/],
    ['batcher imports a script', 'batcher/loop.ts', "import '../scripts/start.ts';", /batcher may not import scripts/],
    ['something imports test', 'scripts/check.ts', "import '../test/start.test.ts';", /nothing imports test/],
    ['a late import', 'gateway/late.ts', `const a = await ${LATE}('../batcher/main.ts');`, /gateway may not import batcher/],
    ['a re-export', 'gateway/again.ts', "export { a } from '../batcher/main.ts';", /gateway may not import batcher/],
    ['a second file with koffi', 'batcher/engine/memory.ts', "import koffi from 'koffi';", /only one file knows koffi/],
    ['Redis in the loop', 'batcher/loop.ts', "import { Redis } from 'ioredis';", /only intake, outbox, heartbeat and redis/],
    [
      'the queue in the engine',
      'batcher/engine/queue.ts',
      "import type { Job } from 'bullmq';",
      /only intake, outbox, heartbeat and redis/,
    ],
    ['text in the scheduler', 'batcher/scheduler/plan.ts', "import '../text/detokenizer.ts';", /scheduler sees no tensor, no text/],
    [
      'the engine in the scheduler',
      'batcher/scheduler/plan.ts',
      "import type { A } from '../engine/ort.ts';",
      /scheduler sees no tensor, no text/,
    ],
    ['a package in the scheduler', 'batcher/scheduler/plan.ts', "import { now } from 'node:perf_hooks';", /scheduler is pure/],
    ['the scheduler in the engine', 'batcher/engine/runner.ts', "import '../scheduler/scheduler.ts';", /engine sees no priority/],
    ['the Worker in the playground', 'gateway/playground/page.ts', "import '../app.ts';", /whole by itself/],
    ['a package in the playground', 'gateway/playground/page.ts', "import 'hono';", /whole by itself/],
    ['a part of the playground in the Worker', 'gateway/cors.ts', "import './playground/page.ts';", /knows only the whole page/],
    ['a file that is not there', 'batcher/loop.ts', "import './gone.ts';", /there is no such file/],
    ['an import without its ending', 'batcher/loop.ts', "import './main';", /there is no such file/],
    ['utils', 'batcher/utils.ts', '', /says nothing/],
    ['helpers', 'gateway/helpers.ts', '', /says nothing/],
    ['types', 'shared/types.ts', '', /says nothing/],
    ['index', 'gateway/routes/index.ts', '', /says nothing/],
    ['a barrel of constants', 'shared/constants.ts', '', /says nothing/],
    ['camel case', 'batcher/stepPlan.ts', '', /kebab-case/],
    ['no header', 'batcher/loop.ts', '#export const a = 1;\n', /does not open with/],
    ['a header without a name', 'batcher/loop.ts', '#/** This does this and that. */\n', /does not open with/],
  ];

  it.each(broken)('%s', (_what, path, text, rule) => {
    const breaches = breachesOf({ [path]: text });
    expect(breaches).toHaveLength(1);
    expect(breaches[0]).toMatch(rule);
  });

  it('a circle', () => {
    const breaches = breachesOf({
      'batcher/a.ts': "import './b.ts';",
      'batcher/b.ts': "import './c.ts';",
      'batcher/c.ts': "import './a.ts';",
    });
    expect(breaches).toEqual(['circular import: batcher/a.ts → batcher/b.ts → batcher/c.ts → batcher/a.ts']);
  });

  it('but a circle of types is none', () => {
    expect(breachesOf({ 'batcher/a.ts': "import type { B } from './b.ts';", 'batcher/b.ts': "import './a.ts';" })).toEqual([]);
  });
});
