/** StatusCommand: `sluice status`: models, batchers and queues, written anew each second in a terminal, once elsewhere. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, InvalidArgumentError } from 'commander';
import type { BatcherOut, ListOut, QueueOut } from '../../shared/admin-wire.ts';
import { CommandError } from './command-error.ts';
import { gatewayCall } from './gateway-call.ts';
import type { GatewayTarget, KeyUse } from './gateway-target.ts';
import { modelsOf, type Status, statusText } from './status-view.ts';

const CLEAR = '\x1b[H\x1b[J';
const [OTHER_SCREEN, FIRST_SCREEN] = ['\x1b[?1049h\x1b[?25l', '\x1b[?25h\x1b[?1049l'];

export function addStatus(program: Command, about: { targetOf(use: KeyUse): GatewayTarget; isJson(): boolean }): void {
  program
    .command('status')
    .description('models, batchers, queues and tokens/s, as they are now; live in a terminal until Ctrl-C')
    .option('--once', 'once, also in a terminal')
    .option('--interval <seconds>', 'time between two looks', seconds, 1)
    .action(async ({ once, interval }: { once?: boolean; interval: number }) => {
      const target = about.targetOf('admin');
      const isLive = once !== true && process.stdout.isTTY === true && !about.isJson();
      if (isLive) return await watch(target, interval);
      const status = await look(target);
      const json = { ...status, models: modelsOf(status).map(snakeCase) };
      process.stdout.write(`${about.isJson() ? JSON.stringify(json, undefined, 2) : statusText(status)}\n`);
    });
}

async function look(target: GatewayTarget): Promise<Status> {
  const call = gatewayCall(target, '/admin');
  const [batchers, queues] = await Promise.all([call<ListOut<BatcherOut>>('GET', '/batchers'), call<ListOut<QueueOut>>('GET', '/queues')]);
  return { url: target.url, batchers: batchers.data, queues: queues.data };
}

/** Until Ctrl-C. A gateway that is away for a while is said to be, and looked for again. */
async function watch(target: GatewayTarget, interval: number): Promise<void> {
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stop.abort());
  process.stdout.on('error', () => stop.abort());
  process.stdout.write(OTHER_SCREEN);
  try {
    while (!stop.signal.aborted) {
      const text = await look(target).then(statusText, thrown => {
        if (thrown instanceof CommandError) return thrown.message;
        throw thrown;
      });
      const head = `Sluice at ${target.url}, ${new Date().toLocaleTimeString('en-GB')}`;
      process.stdout.write(`${CLEAR}${fitting(`${head}\n\n${text}`).join('\n')}\n`);
      await sleep(interval * 1000, undefined, { signal: stop.signal }).catch(() => undefined);
    }
  } finally {
    process.stdout.write(FIRST_SCREEN);
  }
}

/** What fits the terminal, if it says how large it is. */
function fitting(text: string): string[] {
  const { rows, columns } = process.stdout;
  return text
    .split('\n')
    .slice(0, rows > 1 ? rows - 1 : undefined)
    .map(line => line.slice(0, columns > 0 ? columns : undefined));
}

function snakeCase(fields: object): object {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`), value]),
  );
}

function seconds(text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && value >= 0.2 && value <= 3_600) return value;
  throw new InvalidArgumentError('It must be a number of seconds from 0.2 to 3600.');
}
