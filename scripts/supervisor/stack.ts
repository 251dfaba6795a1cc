/**
 * Stack: Redis, batchers and gateway of one installation, as one thing that starts and stops. Whatever happens during the start, stop() leaves
 * no process behind, within five seconds.
 *
 *   Redis ───┬──▶ batchers (also need the model) ──┐
 *   model ───┤                                     ├──▶ one-token request answered
 *   bundle ──┴──▶ gateway  (also needs Redis) ─────┘
 */
import { join } from 'node:path';
import { batcherCommand } from './batcher-command.ts';
import { ChildLog } from './child-log.ts';
import { ChildProcess, type CrashReport } from './child-process.ts';
import type { DataFolder } from './data-folder.ts';
import { awaitFirstToken, awaitFirstVector } from './first-answer.ts';
import { bundleFor, gatewayCommand, gatewayUrl } from './gateway-command.ts';
import { capacityIn, readable, warningIn } from './log-line.ts';
import { ensureRedisBinary } from './redis-binary.ts';
import { startRedisServer } from './redis-server.ts';
import { StartError } from './start-error.ts';
import type { Runtime } from './start-options.ts';
import { WarningGate } from './warning-gate.ts';

/** Five seconds in all: batchers finish what they can, then the gateway ends its streams, then Redis writes its file. */
const DRAIN_MS = 1_500;
const BATCHER_GRACE_MS = 2_200;
const GATEWAY_GRACE_MS = 800;
const START_TRIES = 2;

export interface StackModel {
  /** Prepared folder. */
  directory: string;
  name: string;
}

export interface StackPlan {
  data: DataFolder;
  host: string;
  port: number;
  developmentKey: string;
  /** Absent means a Redis of our own. */
  redisUrl: string | undefined;
  runtime: Runtime;
  batcherCount: number;
  batcherArguments: readonly string[];
  /** Settings of the gateway besides those that the stack itself sets. */
  bindings: Readonly<Record<string, string>>;
}

/** Told what happens, as it happens. */
export interface StackListener {
  done(part: 'Redis' | 'Model' | 'Embeddings' | 'Batcher' | 'Gateway', detail: string): void;
  note(line: string): void;
  /** Worth a person's eye; may come at any time. */
  warn(line: string): void;
}

export class Stack {
  readonly url: string;
  #plan: StackPlan;
  #listener: StackListener;
  #redis: ChildProcess | undefined;
  #gateway: ChildProcess | undefined;
  #batchers: ChildProcess[] = [];
  #stopped = new AbortController();
  #starting: Promise<void> | undefined;
  #capacity: string | undefined;

  constructor(plan: StackPlan, listener: StackListener) {
    this.#plan = plan;
    this.#listener = listener;
    this.url = gatewayUrl(plan.host, plan.port);
  }

  /** Of the batchers that run, for those who measure them. */
  get batcherPids(): number[] {
    return this.#batchers.flatMap(batcher => batcher.pid ?? []);
  }

  get gatewayPid(): number | undefined {
    return this.#gateway?.pid;
  }

  /** Starts batchers again that ended because they were asked to. */
  restartDrained(): void {
    for (const batcher of this.#batchers) if (batcher.state === 'stopped' && !this.#stopped.signal.aborted) batcher.start();
  }

  /** Aborted by stop(): for work on the model that the start waits for. */
  get stopped(): AbortSignal {
    return this.#stopped.signal;
  }

  /** Resolves when a request has gone through the whole path; rejects when a part cannot be started, or stop() came first. */
  start(model: Promise<StackModel>, embeddingModel?: Promise<StackModel>): Promise<void> {
    this.#starting = this.#start(model, embeddingModel);
    return this.#starting;
  }

  async stop(): Promise<void> {
    this.#stopped.abort(new StackStopped());
    await Promise.all(this.#batchers.map(batcher => batcher.stop()));
    await this.#gateway?.stop();
    // A Redis that was on its way when we were stopped has arrived, or given up, by then.
    await this.#starting?.catch(() => {});
    await this.#redis?.stop();
  }

  /** At once, without regard for requests under way. */
  kill(): void {
    this.#stopped.abort(new StackStopped());
    for (const child of [...this.#batchers, this.#gateway, this.#redis]) child?.kill();
  }

  async #start(modelPromise: Promise<StackModel>, embeddingPromise: Promise<StackModel> | undefined): Promise<void> {
    embeddingPromise?.catch(() => {});
    const failure = Promise.withResolvers<never>();
    failure.promise.catch(() => {});
    const { signal } = this.#stopped;
    const stopped = new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));
    stopped.catch(() => {});
    const orFailure = <T>(work: Promise<T>): Promise<T> => Promise.race([work, failure.promise, stopped]);

    const bundlePromise = bundleFor(this.#plan.runtime, this.#plan.data.gateway);
    bundlePromise.catch(() => {});
    const redisPromise = this.#openRedis();
    redisPromise.catch(() => {});
    try {
      const redisUrl = await Promise.race([redisPromise, stopped, modelPromise.then(() => redisPromise)]);
      const batchers = orFailure(modelPromise).then(model => this.#startBatchers(model, redisUrl, failure.reject));
      const gateway = orFailure(bundlePromise).then(bundle => this.#startGateway(bundle, redisUrl, failure.reject));
      const embeddings = embeddingPromise && orFailure(embeddingPromise).then(model => this.#startEncoder(model, redisUrl, failure.reject));
      await Promise.all([batchers, gateway, embeddings]);
      const { developmentKey } = this.#plan;
      await orFailure(awaitFirstToken(this.url, developmentKey, signal));
      if (embeddingPromise !== undefined)
        await orFailure(awaitFirstVector(this.url, developmentKey, (await embeddingPromise).name, signal));
    } catch (thrown) {
      // So that a Redis still on its way is known before anybody stops it.
      await redisPromise.catch(() => {});
      throw thrown;
    }
    for (const child of [...this.#batchers, this.#gateway]) child?.ready();
    const { batcherCount } = this.#plan;
    const processes = batcherCount === 1 ? 'one process' : `${batcherCount} processes, each`;
    this.#listener.done('Batcher', this.#capacity === undefined ? processes : `${processes} with a ${this.#capacity}`);
    this.#listener.done('Gateway', this.#plan.runtime);
  }

  async #openRedis(): Promise<string> {
    const { redisUrl, data } = this.#plan;
    if (redisUrl !== undefined) {
      const { checkRedis } = await import('./redis-elsewhere.ts');
      this.#listener.done('Redis', await checkRedis(redisUrl));
      return redisUrl;
    }
    const binary = await ensureRedisBinary(line => this.#listener.note(line), this.#stopped.signal);
    const redis = await startRedisServer({
      binary,
      folder: data.redis,
      log: new ChildLog(join(data.logs, 'redis.log')),
      onCrash: report => this.#crashed(report),
      signal: this.#stopped.signal,
    });
    this.#redis = redis.child;
    this.#listener.done('Redis', `our own, on port ${redis.port}`);
    return redis.url;
  }

  #startBatchers(model: StackModel, redisUrl: string, fail: (error: Error) => void): void {
    this.#listener.done('Model', model.name);
    for (let number = 1; number <= this.#plan.batcherCount; number += 1) {
      this.#startBatcher({ name: `batcher-${number}`, number, model, redisUrl, fail });
    }
  }

  /** Behind the others by number. */
  #startEncoder(model: StackModel, redisUrl: string, fail: (error: Error) => void): void {
    this.#listener.done('Embeddings', model.name);
    this.#startBatcher({ name: 'batcher-embeddings', number: this.#plan.batcherCount + 1, model, redisUrl, fail });
  }

  #startBatcher(plan: { name: string; number: number; model: StackModel; redisUrl: string; fail: (error: Error) => void }): void {
    const { name, number, model, redisUrl, fail } = plan;
    const { batcherCount, batcherArguments, data } = this.#plan;
    const child = this.#child(name, {
      ...batcherCommand({
        number,
        batcherCount,
        modelFolder: model.directory,
        dataFolder: data.path,
        redisUrl,
        arguments: batcherArguments,
        drainMs: DRAIN_MS,
      }),
      graceMs: BATCHER_GRACE_MS,
      deathSignal: 'SIGTERM',
      onFailure: report => fail(startFailure(report)),
      onDone: () => this.#listener.note(`${name} was drained and has ended; the next npm start has it again.`),
    });
    this.#batchers.push(child);
    child.start();
  }

  async #startGateway(bundlePath: string | undefined, redisUrl: string, fail: (error: Error) => void): Promise<void> {
    const { runtime, data, host, port, developmentKey, bindings } = this.#plan;
    const plan = {
      runtime,
      folder: data.gateway,
      host,
      port,
      bindings: { ...bindings, REDIS_URL: redisUrl, SLUICE_DEV_KEY: developmentKey },
    };
    const command = await gatewayCommand(plan, bundlePath);
    this.#stopped.signal.throwIfAborted();
    this.#gateway = this.#child('gateway', {
      command,
      // wrangler would send its maker figures of use, and ask for updates.
      environment: { WRANGLER_SEND_METRICS: 'false', WRANGLER_HIDE_BANNER: 'true' },
      graceMs: GATEWAY_GRACE_MS,
      // workerd waits for its open connections, and then there is nobody left to kill it; its storage survives a kill.
      deathSignal: runtime === 'workerd' ? 'SIGKILL' : 'SIGTERM',
      onFailure: report => fail(startFailure(report)),
    });
    this.#gateway.start();
  }

  #child(
    name: string,
    plan: {
      command: readonly string[];
      environment?: NodeJS.ProcessEnv;
      graceMs: number;
      deathSignal: NodeJS.Signals;
      onFailure: (report: CrashReport) => void;
      onDone?: () => void;
    },
  ): ChildProcess {
    const log = new ChildLog(join(this.#plan.data.logs, `${name}.log`));
    const gate = new WarningGate(log.path, line => this.#listener.warn(line));
    return new ChildProcess({
      name,
      log,
      onLine: line => {
        this.#capacity ??= capacityIn(line);
        const warning = warningIn(line);
        if (warning !== undefined) gate.say(`${name}: ${warning}`);
      },
      onCrash: report => this.#crashed(report),
      startTries: START_TRIES,
      ...plan,
    });
  }

  #crashed(report: CrashReport): void {
    this.#listener.warn(
      [`${report.name} ended (${report.how}); starting it again in ${report.pauseMs / 1000} s. Its last lines:`, ...lastLines(report)].join(
        '\n',
      ),
    );
  }
}

/** stop() came before the start was through: nobody's fault. */
export class StackStopped extends Error {}

function startFailure(report: CrashReport): StartError {
  return new StartError([`${report.name} does not start (${report.how}). Its last lines:`, ...lastLines(report)].join('\n'));
}

function lastLines(report: CrashReport): string[] {
  return report.lastLines.filter(line => line.trim() !== '').map(line => `    ${readable(line)}`);
}
