import { type ChildProcess, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { firstLine, isAlive, until } from './process-life.ts';

const PROJECT = join(import.meta.dirname, '../..');
let project: string;
const started: ChildProcess[] = [];

beforeEach(() => {
  project = mkdtempSync(join(tmpdir(), 'sluice-run-'));
  mkdirSync(join(project, 'scripts', 'supervisor'), { recursive: true });
  for (const file of ['scripts/run.mjs', 'scripts/supervisor/end-with-parent.ts', 'package-lock.json', 'package.json']) {
    cpSync(join(PROJECT, file), join(project, file));
  }
});
afterEach(() => {
  for (const child of started.splice(0)) child.kill('SIGKILL');
  rmSync(project, { recursive: true });
});

function withPackages(): void {
  symlinkSync(join(PROJECT, 'node_modules'), join(project, 'node_modules'));
}

function script(name: string, text: string): void {
  writeFileSync(join(project, 'scripts', `${name}.ts`), text);
}

function run(args: string[], environment: NodeJS.ProcessEnv = {}): ChildProcess {
  const child = spawn('node', [join(project, 'scripts', 'run.mjs'), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, npm_execpath: '', npm_lifecycle_event: '', ...environment },
  });
  started.push(child);
  return child;
}

async function ended(child: ChildProcess): Promise<{ code: number | null; signal: string | null; output: string }> {
  let output = '';
  child.stdout?.on('data', bytes => (output += bytes));
  child.stderr?.on('data', bytes => (output += bytes));
  return new Promise(resolve => child.once('close', (code, signal) => resolve({ code, signal, output })));
}

/** Says its number, and the signals that it gets. */
const LISTENER = `
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => { console.log(signal); process.exit(7); });
  setInterval(() => {}, 1000); console.log(process.pid);`;

describe('a script', () => {
  beforeEach(withPackages);

  it('runs on Node 24 with its arguments, and its exit code is kept', async () => {
    script('probe', 'console.log(JSON.stringify([process.version, ...process.argv.slice(2)])); process.exit(5);');
    const { code, output } = await ended(run(['probe', '--a', 'b c']));
    const [version, ...args] = JSON.parse(output);
    expect(version).toMatch(/^v24\./);
    expect(args).toEqual(['--a', 'b c']);
    expect(code).toBe(5);
  });

  it('that ends by a signal makes run end by it', async () => {
    script('probe', "process.kill(process.pid, 'SIGKILL'); setInterval(() => {}, 1000);");
    expect(await ended(run(['probe']))).toMatchObject({ code: null, signal: 'SIGKILL' });
  });

  it.each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)('gets %s', async signal => {
    script('probe', LISTENER);
    const child = run(['probe']);
    const end = ended(child);
    await firstLine(child);
    child.kill(signal);
    const { code, output } = await end;
    expect(output).toContain(signal);
    expect(code).toBe(7);
  });

  it('does not outlive a run that was killed without warning', async () => {
    script('probe', LISTENER);
    const child = run(['probe']);
    const pid = Number(await firstLine(child));
    child.kill('SIGKILL');
    await until(() => !isAlive(pid));
  });

  it('does not outlive the shell that npm had started run with', async () => {
    script('probe', LISTENER);
    const shell = spawn('sh', ['-c', '"$0" "$1" probe; :', 'node', join(project, 'scripts', 'run.mjs')], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    started.push(shell);
    const pid = Number(await firstLine(shell));
    shell.kill('SIGKILL');
    await until(() => !isAlive(pid));
  });

  it('does not outlive npm, though the shell between them does', async () => {
    script('start', LISTENER);
    const npm = spawn('npm', ['--silent', 'start'], { cwd: project, stdio: ['ignore', 'pipe', 'inherit'] });
    started.push(npm);
    const pid = Number(await firstLine(npm));
    npm.kill('SIGKILL');
    await until(() => !isAlive(pid));
  });

  it.each([[[]], [['no-such-script']], [['../start']]])('%s is refused', async args => {
    const { code, output } = await ended(run(args as string[]));
    expect(code).toBe(2);
    expect(output).toMatch(/^(Usage|There is no script)/);
  });
});

describe('packages', () => {
  /** In npm's place, to see when and how it is called; it installs by linking what is there. */
  function recordingNpm(): string {
    const path = join(project, 'npm-cli.js');
    writeFileSync(
      path,
      `import fs from 'node:fs';
       const call = [process.argv.slice(2), process.cwd(), process.env.ONNXRUNTIME_NODE_INSTALL];
       fs.appendFileSync(${JSON.stringify(join(project, 'calls'))}, JSON.stringify(call) + '\\n');
       fs.rmSync('node_modules', { recursive: true, force: true });
       fs.symlinkSync(${JSON.stringify(join(PROJECT, 'node_modules'))}, 'node_modules');`,
    );
    return path;
  }

  function calls(): unknown[][] {
    const path = join(project, 'calls');
    return existsSync(path)
      ? readFileSync(path, 'utf8')
          .trim()
          .split('\n')
          .map(line => JSON.parse(line))
      : [];
  }

  it('are installed when they are missing, without the CUDA libraries, and then left alone', async () => {
    script('probe', "console.log('ran');");
    const npm_execpath = recordingNpm();
    const { output } = await ended(run(['probe'], { npm_execpath, ONNXRUNTIME_NODE_INSTALL: undefined }));
    expect(output).toMatch(/Installing packages[\s\S]*ran/);
    expect(calls()).toEqual([[expect.arrayContaining(['ci', '--include=dev']), project, 'skip']]);
    expect((await ended(run(['probe'], { npm_execpath }))).output).toBe('ran\n');
    expect(calls()).toHaveLength(1);
  });

  it('are installed anew when the lockfile wants another version', async () => {
    // Of its own, not a link to ours: whatever installs would clear it.
    mkdirSync(join(project, 'node_modules'));
    symlinkSync(join(PROJECT, 'node_modules', 'node'), join(project, 'node_modules', 'node'));
    cpSync(join(PROJECT, 'node_modules', '.package-lock.json'), join(project, 'node_modules', '.package-lock.json'));
    const lock = JSON.parse(readFileSync(join(project, 'package-lock.json'), 'utf8'));
    lock.packages['node_modules/zod'].version = '0.0.1';
    writeFileSync(join(project, 'package-lock.json'), JSON.stringify(lock));
    script('probe', "console.log('ran');");
    await ended(run(['probe'], { npm_execpath: recordingNpm() }));
    expect(calls()).toHaveLength(1);
  });

  it('that cannot be installed end the run with npm’s exit code', async () => {
    script('probe', "console.log('ran');");
    writeFileSync(join(project, 'npm-cli.js'), 'process.exit(9)');
    const { code, output } = await ended(run(['probe'], { npm_execpath: join(project, 'npm-cli.js') }));
    expect(code).toBe(9);
    expect(output).not.toContain('ran');
  });

  it('without npm are a clear line', async () => {
    script('probe', "console.log('ran');");
    const node = join(project, 'bin');
    mkdirSync(node);
    const real = (await firstLineOf('sh', ['-c', 'command -v node'])).trim();
    symlinkSync(real, join(node, 'node'));
    const child = spawn('node', [join(project, 'scripts', 'run.mjs'), 'probe'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: node },
    });
    const { code, output } = await ended(child);
    expect(code).toBe(2);
    expect(output).toContain('npm is missing');
  });
});

async function firstLineOf(command: string, args: string[]): Promise<string> {
  return firstLine(spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] }));
}
