/** ChatCommand: `sluice chat`: a conversation in the terminal, or one question of its arguments and of what is piped in. */
import { type Command, InvalidArgumentError } from 'commander';
import { ChatScreen } from './chat-screen.ts';
import { ChatSession } from './chat-session.ts';
import { CommandError } from './command-error.ts';
import { Conversation } from './conversation.ts';
import type { GatewayTarget, KeyUse } from './gateway-target.ts';

/** By which an answer ends early, with the exit code that a shell gives for each. */
const SIGNALS = [
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const;

export function addChat(program: Command, targetOf: (use: KeyUse) => GatewayTarget): void {
  program
    .command('chat')
    .description('talks with a model; with a question, or with a text piped in, answers that and ends')
    .argument('[question...]', 'asked at once; a text that is piped in stands behind it')
    .option('--model <name>', 'a served model', 'default')
    .option('--system <text>', 'system message')
    .option('--max-tokens <count>', 'longest answer', number(1, 1 << 24))
    .option('--temperature <value>', 'how free the choice of tokens is; 0 always takes the likeliest', number(0, 2))
    .option('--top-p <value>', 'only the likeliest tokens that make up so much', number(0, 1))
    .option('--seed <number>', 'the same answer for the same seed', number(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER))
    .option('--stats', 'tokens and tokens/s of each answer on standard error, also where that is no terminal')
    .action(async (words: string[], options) => {
      const { model, system, maxTokens, temperature, topP, seed, stats } = options;
      // The terminal, or the program behind the pipe, may be gone before the end.
      for (const stream of [process.stdout, process.stderr]) stream.on('error', () => process.exit(1));
      const session = new ChatSession({
        target: targetOf('tenant'),
        conversation: new Conversation(system),
        parameters: withoutAbsent({ model, max_tokens: maxTokens, temperature, top_p: topP, seed }),
        screen: new ChatScreen({ out: process.stdout, err: process.stderr }),
        hasFigures: stats === true || process.stderr.isTTY === true,
      });
      const question = [words.join(' '), ...(process.stdin.isTTY ? [] : [await readAll(process.stdin)])]
        .filter(part => part !== '')
        .join('\n\n');
      if (process.stdin.isTTY && question === '') return await session.run(process.stdin, process.stdout);
      if (question === '') throw new CommandError('There is no question: give one, pipe a text in, or start it in a terminal.', 2);
      for (const [signal, code] of SIGNALS) {
        process.on(signal, () => {
          process.exitCode = code;
          session.stop();
        });
      }
      if (!(await session.ask(question))) process.exitCode ??= 1;
    });
}

async function readAll(input: NodeJS.ReadStream): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of input) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8').trim();
}

function withoutAbsent(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function number(min: number, max: number): (text: string) => number {
  return text => {
    const value = Number(text);
    if (text.trim() === '' || !(value >= min && value <= max)) throw new InvalidArgumentError(`It must be a number from ${min} to ${max}.`);
    return value;
  };
}
