import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ChildLog } from '../../scripts/supervisor/child-log.ts';
import { type ChildPlan, ChildProcess, type CrashReport } from '../../scripts/supervisor/child-process.ts';
import { firstLine, isAlive, until } from './process-life.ts';

let folder: string;
let child: ChildProcess | undefined;
const crashes: CrashReport[] = [];
const failures: CrashReport[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-child-'));
  crashes.length = 0;
  failures.length = 0;
});
afterEach(async () => {
  child?.kill();
  await child?.stop();
  rmSync(folder, { recursive: true });
});

function shell(script: string, plan: Partial<ChildPlan> = {}): ChildProcess {
  child = new ChildProcess({
    name: 'probe',
    command: ['sh', '-c', script],
    onCrash: report => crashes.push(report),
    onFailure: report => failures.push(report),
    graceMs: 300,
    deathSignal: 'SIGKILL',
    ...plan,
  });
  child.start();
  return child;
}

describe('a child that ends by itself', () => {
  it('is reported with its last lines of both streams and started again', async () => {
    const log = new ChildLog(join(folder, 'logs', 'probe.log'));
    const probe = shell('echo out; echo err >&2; printf unfinished; exit 3', { log, startTries: 10 });
    await until(() => crashes.length === 2);
    expect(crashes[0]).toMatchObject({ name: 'probe', how: 'exit code 3', exitCode: 3 });
    expect([...(crashes[0]?.lastLines ?? [])].sort()).toEqual(['err', 'out', 'unfinished']);
    await probe.stop();
    expect(readFileSync(log.path, 'utf8')).toMatch(/^out$/m);
    expect(readFileSync(log.path, 'utf8')).toMatch(/^--- probe ended: exit code 3$/m);
  });

  it('is given longer and longer pauses', async () => {
    shell('exit 1', { startTries: 10 });
    await until(() => crashes.length === 3);
    expect(crashes.map(crash => crash.pauseMs)).toEqual([500, 1000, 2000]);
  });

  it('by a signal is reported by that signal', async () => {
    shell('kill -SEGV $$', { startTries: 1 });
    await until(() => crashes.length === 1);
    expect(crashes[0]?.how).toBe('SIGSEGV');
  });

  it('too often before it was ready has failed', async () => {
    const probe = shell('echo no; exit 1', { startTries: 1 });
    await until(() => failures.length === 1);
    expect(crashes).toHaveLength(1);
    expect(failures[0]?.lastLines).toEqual(['no']);
    expect(probe.state).toBe('failed');
  });

  it('with exit code 2 has failed at once, unless it has been ready before', async () => {
    shell('exit 2', { startTries: 10 });
    await until(() => failures.length === 1);
    expect(crashes).toHaveLength(0);
    failures.length = 0;
    shell('exit 2').ready();
    await until(() => crashes.length === 1);
    expect(failures).toHaveLength(0);
  });

  it('keeps only the last lines, and cuts a line without an end', async () => {
    shell('for i in $(seq 100); do echo $i; done; head -c 100000 /dev/zero | tr "\\0" x');
    await until(() => failures.length === 1);
    const lines = failures[0]?.lastLines ?? [];
    expect(lines).toHaveLength(20);
    expect(Math.max(...lines.map(line => line.length))).toBe(16_384);
  });
});

it('a program that does not exist has failed, with its name', async () => {
  shell('', { command: ['/no/such/program'] });
  await until(() => failures.length === 1);
  expect(`${failures[0]?.how} ${failures[0]?.lastLines.join(' ')}`).toContain('/no/such/program');
});

describe('stop', () => {
  it('lets it finish', async () => {
    const lines: string[] = [];
    const probe = shell('trap "echo goodbye; exit 0" TERM; echo ready; while :; do sleep 0.05; done', { onLine: line => lines.push(line) });
    await until(() => lines.includes('ready'));
    await probe.stop();
    expect(lines).toEqual(['ready', 'goodbye']);
    expect(crashes).toHaveLength(0);
  });

  it('kills what is deaf, and all that it has started', async () => {
    const lines: string[] = [];
    const probe = shell('trap "" TERM; sleep 600 & echo $!; trap "" TERM; while :; do sleep 0.05; done', {
      onLine: line => lines.push(line),
    });
    await until(() => lines.length === 1);
    const pids = [Number(lines[0]), probe.pid as number];
    expect(pids.map(isAlive)).toEqual([true, true]);
    await probe.stop();
    await until(() => !pids.some(isAlive));
  });

  it('ends a pause before the next start', async () => {
    const probe = shell('exit 1', { startTries: 10 });
    await until(() => probe.state === 'pausing');
    await probe.stop();
    expect(probe.state).toBe('stopped');
    expect(probe.pid).toBeUndefined();
  });
});

it('what a crashed leader leaves of its group is ended too', async () => {
  shell('sleep 600 & echo $!; exit 1');
  await until(() => failures.length === 1);
  const [pid] = failures[0]?.lastLines ?? [];
  await until(() => !isAlive(Number(pid)));
});

it('no child outlives a supervisor that was killed without warning', async () => {
  const supervisor = spawn(process.execPath, [join(import.meta.dirname, 'programs', 'supervised.ts')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const pids: number[] = JSON.parse(await firstLine(supervisor));
  expect(pids.map(isAlive)).toEqual([true, true]);
  supervisor.kill('SIGKILL');
  await until(() => !pids.some(isAlive));
});
