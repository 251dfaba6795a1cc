/** Start: `npm start`: one installation of Sluice on this machine, from nothing to a curl line that works; Ctrl-C or SIGTERM ends all of it. */
import { performance } from 'node:perf_hooks';
import { openDataFolder } from './supervisor/data-folder.ts';
import { developmentKey, keySecret } from './supervisor/development-key.ts';
import { claimPort } from './supervisor/free-port.ts';
import { writeGatewayAddress } from './supervisor/gateway-address.ts';
import { Screen } from './supervisor/screen.ts';
import { Stack, StackStopped } from './supervisor/stack.ts';
import { StartError } from './supervisor/start-error.ts';
import { acquireStartLock } from './supervisor/start-lock.ts';
import { prepareEmbeddingModel, prepareStartModel } from './supervisor/start-model.ts';
import { readStartOptions, type StartOptions } from './supervisor/start-options.ts';

/** Ctrl-C reaches us from the terminal, from npm and from run.mjs within moments: that is one wish, not three. */
const IMPATIENT_AFTER_MS = 1_000;

const options = readStartOptions(process.argv.slice(2), process.env);
const screen = new Screen();
process.exitCode = await main();
// Nothing of ours is left to wait for; a library's idle connection must not hold the process.
process.exit();

async function main(): Promise<number> {
  try {
    const data = openDataFolder(options.dataFolder);
    const lock = acquireStartLock(data.path);
    try {
      return await runUntilStopped(options, data);
    } finally {
      lock.release();
    }
  } catch (thrown) {
    return complain(thrown);
  }
}

async function runUntilStopped(options: StartOptions, data: ReturnType<typeof openDataFolder>): Promise<number> {
  const port = await claimPort(options.port, options.host);
  const key = developmentKey(data.path);
  screen.plain(`\n${screen.bold('Sluice')}\n`);
  // Before all else: the gateway may answer a moment before the last line here is printed.
  screen.done('Key', `${key} ${screen.dim('for development')}`);
  const stack = new Stack(
    {
      data,
      host: options.host,
      port,
      developmentKey: key,
      redisUrl: options.redisUrl,
      runtime: options.runtime,
      batcherCount: options.batcherCount,
      batcherArguments: options.batcherArguments,
      bindings: { SLUICE_KEY_SECRET: keySecret(data.path), ...gatewaySettings(process.env) },
    },
    screen,
  );
  const asked = askedToStop(stack);
  let code = 0;
  try {
    const { embeddingModel } = options;
    await stack.start(
      prepareStartModel(options, screen, stack.stopped),
      embeddingModel === undefined ? undefined : prepareEmbeddingModel(embeddingModel, screen, stack.stopped),
    );
    writeGatewayAddress(data.path, stack.url);
    greet(stack.url, key, data.logs);
    await asked;
  } catch (thrown) {
    if (!(thrown instanceof StackStopped)) code = complain(thrown);
  }
  if (code === 0) screen.plain('\nStopping …');
  await stack.stop();
  return code;
}

/** Resolves at the first signal and stops the stack; a second one, a while later, kills it. */
function askedToStop(stack: Stack): Promise<void> {
  return new Promise(resolve => {
    let firstAt: number | undefined;
    const onSignal = () => {
      if (firstAt === undefined) {
        firstAt = performance.now();
        void stack.stop();
        resolve();
      } else if (performance.now() - firstAt > IMPATIENT_AFTER_MS) {
        stack.kill();
      }
    };
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal);
  });
}

function gatewaySettings(environment: NodeJS.ProcessEnv): Record<string, string> {
  const ours = Object.entries(environment).filter(([name, value]) => /^SLUICE_(?!TEST_|PARENT_PID)/.test(name) && value !== undefined);
  return Object.fromEntries(ours) as Record<string, string>;
}

function greet(url: string, key: string, logs: string): void {
  const seconds = performance.now() / 1000;
  const body =
    '{"model":"default","stream":true,"temperature":0,"max_tokens":200,"messages":[{"role":"user","content":"What is the capital of France?"}]}';
  screen.plain(`
${screen.bold(`Ready at ${url}`)} ${screen.dim(`after ${seconds.toFixed(seconds < 100 ? 1 : 0)} s`)}

  Playground: ${url}/#key=${key}

  curl -N ${url}/v1/chat/completions -H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json' -d '${body}'

${screen.dim(`Logs are in ${logs}. Ctrl-C stops everything.`)}`);
}

/** One line for what a person can mend, a stack for our bugs; the exit code. */
function complain(thrown: unknown): number {
  if (thrown instanceof StartError || (thrown instanceof Error && thrown.name === 'ModelError')) {
    screen.error(thrown.message);
    return 2;
  }
  screen.error(thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown));
  return 1;
}
