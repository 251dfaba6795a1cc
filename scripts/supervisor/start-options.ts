/** StartOptions: what `npm start` can be told, each with its default and bound; a bad value ends with one line that names the rule, exit code 2. */
import { Command, InvalidArgumentError, Option } from 'commander';
import type { Kernels, Quality } from '../../batcher/model/matrix-form.ts';
import { defaultDataFolder } from './data-folder.ts';
import { kernelsOption, qualityOption } from './model-options.ts';

export const RUNTIMES = ['workerd', 'wrangler'] as const;
export type Runtime = (typeof RUNTIMES)[number];

export const WEIGHTS = ['q4', 'q8', 'f32'] as const;
export type Weights = (typeof WEIGHTS)[number];

export interface StartOptions {
  /** 0 means any free one. */
  port: number;
  host: string;
  /** Path of a GGUF file or a name; absent means the default model. */
  model: string | undefined;
  weights: Weights | undefined;
  /** Absent: our own where the host can compile and run them. */
  kernels: Kernels | undefined;
  quality: Quality | undefined;
  /** Folder of an embedding model or a name; absent means none. */
  embeddingModel: string | undefined;
  batcherCount: number;
  /** Handed to every batcher as they were given. */
  batcherArguments: string[];
  /** Absent means a Redis of our own. */
  redisUrl: string | undefined;
  runtime: Runtime;
  dataFolder: string;
}

/** Handed on to batcher/main.ts, which checks them and knows their defaults: a new one is a new line here. */
export const BATCHER_OPTIONS: readonly [flags: string, about: string][] = [
  ['--threads <count>', 'threads of each batcher (default: all processors, divided among the batchers)'],
  [
    '--spinning <on|off>',
    'idle engine threads spin between operators; off leaves the processor to others (default: on; briefly for embeddings)',
  ],
  ['--max-running <count>', 'sequences that a batcher computes at once (default: 32)'],
  ['--context <tokens>', 'longest prompt plus answer (default: the model’s own)'],
  ['--kv-memory <size>', 'memory of each batcher for keys and values, as 512M or 4G (default: a share of what is free)'],
  ['--kv-type <f16|f32>', 'numbers of keys and values: f16 holds twice the tokens (default: f16 where our kernels run)'],
  ['--max-batched-tokens <tokens>', 'tokens of one step (default: 512)'],
  ['--itl-slo <ms>', 'ms between two tokens of a stream that a prefill beside it keeps to (default: 150)'],
  ['--ttft-slo <ms>', 'wanted time to first token where the request names none'],
  ['--reproducible <on|off>', 'the same bytes for the same seed whatever runs beside it; off is faster (default: on)'],
  ['--tool-format <hermes|llama3|mistral>', 'how the model writes calls of functions (default: as its chat template tells, else hermes)'],
  [
    '--reasoning-format <think|none>',
    'whether <think>…</think> in front of an answer is told apart from it (default: as its chat template tells)',
  ],
  ['--max-attempts <count>', 'batchers that may end over a request at one place before it fails for good (default: 3)'],
  ['--public-prefix <file...>', 'system messages that all tenants may share in the prefix cache'],
];

export function readStartOptions(argv: readonly string[], environment: NodeJS.ProcessEnv): StartOptions {
  const program = new Command('npm start --')
    .usage('[options]')
    .description('Starts Sluice on this machine: Redis, batchers and the gateway. Ctrl-C ends all of it.')
    .option('--port <number>', 'port of the gateway; 0 takes a free one', wholeNumber(0, 65_535), 8080)
    .option('--host <address>', 'address to listen on; 0.0.0.0 or * for all', '127.0.0.1')
    .option('--model <path|name>', 'GGUF file, or the name of a known model (default: smollm2-135m-instruct, fetched once)')
    .addOption(new Option('--weights <form>', 'number form of the weights (default: as in the file, without loss)').choices(WEIGHTS))
    .addOption(kernelsOption())
    .addOption(qualityOption())
    .option('--embedding-model <path|name>', 'a model for /v1/embeddings besides: its folder, or all-minilm-l6-v2 (default: none)')
    .option('--batchers <count>', 'batcher processes', wholeNumber(1, 256), 1)
    .option(
      '--redis <url>',
      'a running Redis or Valkey instead of one of our own; REDIS_URL does the same and keeps a password out of sight',
    )
    .addOption(
      new Option('--runtime <name>', 'what runs the gateway: workerd is several times faster, wrangler reloads on change')
        .choices(RUNTIMES)
        .default('workerd'),
    )
    .option('--data <folder>', 'what must survive a restart: queue, development key, logs', defaultDataFolder(environment))
    .helpOption('-h, --help', 'this text')
    .allowExcessArguments(false)
    .showHelpAfterError('(npm start -- --help explains all options)')
    .exitOverride(error => process.exit(error.exitCode === 0 ? 0 : 2));
  program.optionsGroup('Batcher options:');
  for (const [flags, about] of BATCHER_OPTIONS) program.option(flags, about);
  program.addHelpText(
    'after',
    '\nEvery SLUICE_* variable of the environment is handed to the gateway as a setting.\nThe first start fetches packages and the model; they are kept.',
  );
  program.parse([...argv], { from: 'user' });
  const given = program.opts();
  return {
    port: given.port,
    host: given.host,
    model: given.model,
    weights: given.weights,
    kernels: given.kernels,
    quality: given.quality,
    embeddingModel: given.embeddingModel,
    batcherCount: given.batchers,
    batcherArguments: BATCHER_OPTIONS.flatMap(([flags]) => {
      const option = new Option(flags);
      const value = given[option.attributeName()];
      const values = Array.isArray(value) ? value : value === undefined ? [] : [value];
      return values.flatMap(one => [option.long as string, String(one)]);
    }),
    redisUrl: given.redis ?? (environment.REDIS_URL || undefined),
    runtime: given.runtime,
    dataFolder: given.data,
  };
}

function wholeNumber(min: number, max: number): (text: string) => number {
  return text => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max)
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    return value;
  };
}
