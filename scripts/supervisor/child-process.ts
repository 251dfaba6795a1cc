/**
 * ChildProcess: one program that should run until it is stopped. Its output goes to its log; when it ends by itself that is reported with
 * its last lines and it is started again after a growing pause. It leads a process group of its own, and stop() leaves none of it behind.
 *
 *   idle ──start──▶ running ──ends──▶ pausing ──▶ running …          any ──stop──▶ stopped
 *                      ├── ends before ready() too often, or with exit code 2 ──▶ failed
 *                      └── ends with exit code 0, where that is on purpose ──▶ stopped
 */
import { spawn } from 'node:child_process';
import type { ChildLog } from './child-log.ts';
import { LineSplitter } from './line-splitter.ts';
import { withParentDeathSignal } from './parent-death-signal.ts';

const LAST_LINE_COUNT = 20;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** A child that ran for this long has recovered: the next pause is the first again. */
const RECOVERED_MS = 30_000;
/** Our programs end with 2 when they were given something wrong: a second try would end the same. */
const WRONG_SETTING = 2;

export interface ChildPlan {
  /** For messages, such as `batcher-1`. */
  name: string;
  command: readonly string[];
  environment?: NodeJS.ProcessEnv;
  folder?: string;
  log?: ChildLog;
  /** Every line that it prints. */
  onLine?: (line: string, stream: 'stdout' | 'stderr') => void;
  /** It ended by itself; it is started again after report.pauseMs. */
  onCrash: (report: CrashReport) => void;
  /** It ended by itself and is not started again. */
  onFailure: (report: CrashReport) => void;
  /** It ended by itself with exit code 0, which is its way to say that it was asked to. Absent where that is a crash like any other. */
  onDone?: () => void;
  /** Crashes before ready() that are forgiven. */
  startTries?: number;
  /** From SIGTERM to SIGKILL. */
  graceMs: number;
  /** What the kernel sends it when the supervisor is gone. */
  deathSignal: NodeJS.Signals;
}

export interface CrashReport {
  name: string;
  /** `exit code 1` or `SIGKILL`, or why it could not be started. */
  how: string;
  exitCode: number | undefined;
  lastLines: readonly string[];
  pauseMs: number;
}

export type ChildState = 'idle' | 'running' | 'pausing' | 'failed' | 'stopped';

export class ChildProcess {
  #plan: ChildPlan;
  #state: ChildState = 'idle';
  #pid: number | undefined;
  #lastLines: string[] = [];
  #isReady = false;
  #startCrashCount = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #restart: NodeJS.Timeout | undefined;
  #ended: Promise<void> = Promise.resolve();
  #stopping: Promise<void> | undefined;

  constructor(plan: ChildPlan) {
    this.#plan = plan;
  }

  get name(): string {
    return this.#plan.name;
  }

  get state(): ChildState {
    return this.#state;
  }

  get pid(): number | undefined {
    return this.#pid;
  }

  get lastLines(): readonly string[] {
    return this.#lastLines;
  }

  /** It does its work: from now on it is started again however often it ends. */
  ready(): void {
    this.#isReady = true;
  }

  start(): void {
    const [command, ...args] = withParentDeathSignal(this.#plan.deathSignal, this.#plan.command) as [string, ...string[]];
    const startedAt = Date.now();
    this.#state = 'running';
    this.#lastLines = [];
    const child = spawn(command, args, {
      cwd: this.#plan.folder,
      env: { ...process.env, ...this.#plan.environment, SLUICE_PARENT_PID: String(process.pid) },
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own: a terminal's Ctrl-C reaches only the supervisor, which ends its children in order.
      detached: true,
    });
    this.#pid = child.pid;
    const splitters = (['stdout', 'stderr'] as const).map(stream => {
      const splitter = new LineSplitter(line => this.#line(line, stream));
      child[stream].on('data', bytes => splitter.write(bytes));
      return splitter;
    });
    this.#ended = new Promise(resolve => {
      let how = '';
      let exitCode: number | undefined;
      child.once('error', error => {
        how = error.message;
        // Without a process there is no exit, and `close` comes only when there was one.
        if (child.pid === undefined) finish();
      });
      child.once('exit', (code, signal) => {
        how ||= signal ?? `exit code ${code}`;
        exitCode = code ?? undefined;
        // What it left behind would hold its pipes open, and outlive us.
        this.#signalGroup('SIGKILL');
      });
      child.once('close', () => finish());
      const finish = () => {
        for (const splitter of splitters) splitter.end();
        this.#pid = undefined;
        resolve();
        this.#finished(how, exitCode, Date.now() - startedAt);
      };
    });
  }

  /** Ends it, at the latest after the grace time; resolves when nothing of it runs. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    clearTimeout(this.#restart);
    this.#state = 'stopped';
    // Only the leader: it knows best in what order its own children should end.
    this.#signal(this.#pid, 'SIGTERM');
    const killer = setTimeout(() => this.kill(), this.#plan.graceMs);
    await this.#ended;
    clearTimeout(killer);
  }

  /** Without grace. */
  kill(): void {
    clearTimeout(this.#restart);
    this.#state = 'stopped';
    this.#signalGroup('SIGKILL');
  }

  #line(line: string, stream: 'stdout' | 'stderr'): void {
    this.#lastLines.push(line);
    if (this.#lastLines.length > LAST_LINE_COUNT) this.#lastLines.shift();
    this.#plan.log?.write(line);
    this.#plan.onLine?.(line, stream);
  }

  #finished(how: string, exitCode: number | undefined, ranForMs: number): void {
    if (this.#state === 'stopped') return;
    if (ranForMs > RECOVERED_MS) this.#pauseMs = FIRST_PAUSE_MS;
    const report: CrashReport = { name: this.name, how, exitCode, lastLines: [...this.#lastLines], pauseMs: this.#pauseMs };
    this.#plan.log?.write(`--- ${this.name} ended: ${how}`);
    if (exitCode === 0 && this.#plan.onDone !== undefined) {
      this.#state = 'stopped';
      this.#plan.onDone();
      return;
    }
    if (!this.#isReady && (exitCode === WRONG_SETTING || this.#startCrashCount >= (this.#plan.startTries ?? 0))) {
      this.#state = 'failed';
      this.#plan.onFailure(report);
      return;
    }
    this.#startCrashCount += 1;
    this.#state = 'pausing';
    this.#restart = setTimeout(() => this.start(), this.#pauseMs);
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS);
    this.#plan.onCrash(report);
  }

  #signalGroup(signal: NodeJS.Signals): void {
    if (this.#pid !== undefined) this.#signal(-this.#pid, signal);
  }

  #signal(target: number | undefined, signal: NodeJS.Signals): void {
    if (target === undefined) return;
    try {
      process.kill(target, signal);
    } catch {
      // Gone already.
    }
  }
}
