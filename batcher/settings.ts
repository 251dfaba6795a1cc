/** Settings: every knob of a batcher process, read once from its arguments and environment; a bad value stops the start, naming the rule. */
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { Command, InvalidArgumentError, Option } from 'commander';
import { KV_TYPES, type KvType } from './engine/engine.ts';
import { REASONING_FORMATS, type ReasoningFormat } from './reasoning/reasoning-syntax.ts';
import { TOOL_FORMATS, type ToolFormat } from './tools/tool-format.ts';

export interface BatcherSettings {
  /** Prepared model folder (npm run model -- prepare). */
  modelDirectory: string;
  redisUrl: string;
  batcherId: string;
  /** Threads of one engine run. */
  threads: number;
  /** Idle engine threads spin between operators; undefined leaves it to the kind of model. */
  spinning: boolean | undefined;
  /** Sequences computed at once: rows of the KV cache. */
  maxRunning: number;
  /** Tokens of one sequence, prompt and answer; at most the model's own. */
  contextTokens: number | undefined;
  /** Undefined: half precision, where the prepared model has a graph for it. */
  kvType: KvType | undefined;
  /** Memory for keys and values in bytes, rows and prefix store together; undefined takes a share of what is available. */
  kvMemoryBytes: number | undefined;
  /** Bound on the extra inter-token latency that a prefill may cause, in ms; it sizes the prefill chunks by the measured rate. */
  itlSloMs: number;
  /** Tokens of one step. */
  maxBatchedTokens: number;
  /** Wanted time to first token where the request names none, in ms. */
  ttftSloMs: number | undefined;
  /** Seeded requests get the same bytes whatever runs beside them; off is faster. */
  reproducible: boolean;
  /** Drafts by prompt look-up, where they pay. */
  speculation: boolean;
  /** How the model writes calls of functions; undefined: as its chat template tells. */
  toolFormat: ToolFormat | undefined;
  reasoningFormat: ReasoningFormat | undefined;
  /** A request is tried so many times before it fails for good. */
  maxAttempts: number;
  /** Files, each the text of a system message that all tenants may share. */
  publicPrefixPaths: readonly string[];
  /** Where /metrics is served on the loopback interface; undefined serves none. */
  metricsPort: number | undefined;
  /** File that gets a line for each step; undefined: none. */
  stepLogPath: string | undefined;
  /** Jobs taken off the queue ahead of a free row. */
  prefetch: number;
  /** Text blocks of 256 bytes that the edge is told are in the prefix cache, at most; 0 tells nothing. */
  prefixDirectoryEntries: number;
  /** A job whose batcher is silent for this long goes to another. */
  lockMs: number;
  /** SIGTERM: how long running requests may go on. */
  drainTimeoutMs: number;
  logLevel: string;
}

function integer(name: string, min: number, max: number): (text: string) => number {
  return text => {
    const value = Number(text);
    if (!Number.isInteger(value) || value < min || value > max) {
      throw new InvalidArgumentError(`${name} must be a whole number from ${min} to ${max}.`);
    }
    return value;
  };
}

const UNITS: Record<string, number> = { K: 2 ** 10, M: 2 ** 20, G: 2 ** 30 };

function byteSize(text: string): number {
  const match = /^(\d+(?:\.\d+)?)([KMG])$/i.exec(text);
  if (match === null) throw new InvalidArgumentError('must be a size such as 512M or 4G.');
  return Math.floor(Number(match[1]) * UNITS[match[2]!.toUpperCase()]!);
}

function onOff(text: string): boolean {
  if (text !== 'on' && text !== 'off') throw new InvalidArgumentError("must be 'on' or 'off'.");
  return text === 'on';
}

export function readSettings(argv: readonly string[], environment: NodeJS.ProcessEnv): BatcherSettings {
  const program = new Command('batcher')
    .requiredOption('--model-dir <folder>', 'prepared model folder')
    .option('--batcher-id <id>', 'name of this process in cards and logs', `batcher-${randomBytes(4).toString('hex')}`)
    .option('--threads <count>', 'threads of one engine run', integer('threads', 1, 1024), availableParallelism())
    .option(
      '--spinning <on|off>',
      'idle engine threads spin between operators (default: on; for an embedding model for some microseconds only)',
      onOff,
    )
    .option('--max-running <count>', 'sequences computed at once', integer('max-running', 1, 1024), 32)
    .option('--context <tokens>', 'longest prompt plus answer; at most and by default the model’s own', integer('context', 16, 1 << 20))
    .option('--kv-memory <size>', 'memory for keys and values, as 512M or 4G; by default a share of what is free', byteSize)
    .addOption(new Option('--kv-type <type>', 'numbers of keys and values; f16 by default where the kernels can').choices(KV_TYPES))
    .option('--itl-slo <ms>', 'ms between two tokens of a stream that a prefill beside it keeps to', integer('itl-slo', 10, 60_000), 150)
    .option('--max-batched-tokens <tokens>', 'tokens of one step', integer('max-batched-tokens', 16, 1 << 20), 512)
    .option('--ttft-slo <ms>', 'wanted time to first token where the request names none', integer('ttft-slo', 1, 3_600_000))
    .option('--reproducible <on|off>', 'the same bytes for the same seed whatever runs beside it; off is faster', onOff, true)
    .option('--speculation <on|off>', 'drafts by prompt look-up for small batches, where they pay', onOff, true)
    .addOption(
      new Option('--tool-format <format>', 'how the model writes calls of functions; by default as its chat template tells').choices(
        TOOL_FORMATS,
      ),
    )
    .addOption(
      new Option(
        '--reasoning-format <format>',
        'whether <think>…</think> in front of an answer is told apart from it; by default as the chat template tells',
      ).choices(REASONING_FORMATS),
    )
    .option(
      '--max-attempts <count>',
      'batchers that may end over a request at one place before it fails for good',
      integer('max-attempts', 1, 100),
      3,
    )
    .option(
      '--public-prefix <file>',
      'system message whose tokens all tenants may share in the prefix cache; can be given more than once',
      (path: string, earlier: string[]) => [...earlier, path],
      [],
    )
    .option('--metrics-port <port>', 'serve /metrics on 127.0.0.1', integer('metrics-port', 0, 65_535))
    .option('--step-log <file>', 'append what each step computed and how long it took, a line of JSON a step')
    .option('--prefetch <count>', 'jobs taken off the queue ahead of a free row', integer('prefetch', 0, 1024), 4)
    .option(
      '--prefix-directory-entries <count>',
      'text blocks that the gateway is told are in the prefix cache; 0 tells nothing',
      integer('prefix-directory-entries', 0, 1 << 20),
      16_384,
    )
    .option('--lock-ms <ms>', 'a job whose batcher is silent for this long goes to another', integer('lock-ms', 500, 600_000), 2_000)
    .option(
      '--drain-timeout-ms <ms>',
      'how long running requests may go on after SIGTERM',
      integer('drain-timeout-ms', 0, 3_600_000),
      4_000,
    )
    .option('--log-level <level>', 'trace, debug, info, warn, error or fatal', 'info');
  // A bad value exits with 2, as what starts batchers knows: trying again would not help.
  program.exitOverride(error => process.exit(error.exitCode === 0 ? 0 : 2));
  program.parse(argv, { from: 'user' });
  const options = program.opts();
  return {
    modelDirectory: options.modelDir,
    redisUrl: environment.REDIS_URL ?? 'redis://127.0.0.1:6379',
    batcherId: options.batcherId,
    threads: options.threads,
    spinning: options.spinning,
    maxRunning: options.maxRunning,
    contextTokens: options.context,
    kvType: options.kvType,
    kvMemoryBytes: options.kvMemory,
    itlSloMs: options.itlSlo,
    maxBatchedTokens: options.maxBatchedTokens,
    ttftSloMs: options.ttftSlo,
    reproducible: options.reproducible,
    speculation: options.speculation,
    toolFormat: options.toolFormat,
    reasoningFormat: options.reasoningFormat,
    maxAttempts: options.maxAttempts,
    publicPrefixPaths: options.publicPrefix,
    metricsPort: options.metricsPort,
    stepLogPath: options.stepLog,
    prefetch: options.prefetch,
    prefixDirectoryEntries: options.prefixDirectoryEntries,
    lockMs: options.lockMs,
    drainTimeoutMs: options.drainTimeoutMs,
    logLevel: options.logLevel,
  };
}
