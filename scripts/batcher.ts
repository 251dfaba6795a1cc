/**
 * Batcher: `npm run batcher -- [options]`: one batcher of this machine for a Redis elsewhere, its model made ready first; for hosts that have
 * an accelerator and no gateway. SIGTERM drains it.
 */
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { kernelsOption, qualityOption } from './supervisor/model-options.ts';
import { checkRedis } from './supervisor/redis-elsewhere.ts';
import { runToEnd } from './supervisor/run-to-end.ts';
import { Screen } from './supervisor/screen.ts';
import { StartError } from './supervisor/start-error.ts';
import { isEmbeddingModel, prepareEmbeddingModel, prepareStartModel } from './supervisor/start-model.ts';
import { BATCHER_OPTIONS, WEIGHTS } from './supervisor/start-options.ts';

const MAIN = join(import.meta.dirname, '..', 'batcher', 'main.ts');
const LEFT_TO_THE_BATCHER = [...BATCHER_OPTIONS, ['--metrics-port <port>', 'serve /metrics on 127.0.0.1'] as const];

const screen = new Screen();
process.exit(await main(process.argv.slice(2)));

async function main(argv: readonly string[]): Promise<number> {
  const program = new Command('npm run batcher --')
    .usage('[options]')
    .description('Runs one batcher for the Redis that REDIS_URL names.')
    .option(
      '--model <path|name>',
      'GGUF file, folder of an embedding model, or the name of a known one (default: smollm2-135m-instruct, fetched once)',
    )
    .addOption(new Option('--weights <form>', 'number form of the weights (default: as in the file, without loss)').choices(WEIGHTS))
    .addOption(kernelsOption())
    .addOption(qualityOption())
    .helpOption('-h, --help', 'this text')
    .allowUnknownOption()
    .allowExcessArguments()
    .exitOverride(error => process.exit(error.exitCode === 0 ? 0 : 2))
    .addHelpText(
      'after',
      `\nThe batcher's own:\n${LEFT_TO_THE_BATCHER.map(([flags, about]) => `  ${flags.padEnd(32)}${about}`).join('\n')}`,
    )
    .parse([...argv], { from: 'user' });
  const { model, weights, kernels, quality } = program.opts();
  try {
    const redisUrl = process.env.REDIS_URL;
    if (!redisUrl)
      throw new StartError('REDIS_URL is missing: it names the Redis that the gateway uses, as rediss://user:password@host:port.');
    screen.done('Redis', await checkRedis(redisUrl));
    const prepared = (await isEmbeddingModel(model))
      ? await prepareEmbeddingModel(model, screen)
      : await prepareStartModel({ model, weights, kernels, quality }, screen);
    screen.done('Model', prepared.name);
    return await runToEnd([process.execPath, MAIN, '--model-dir', prepared.directory, ...program.args], { folder: process.cwd() });
  } catch (thrown) {
    if (!(thrown instanceof Error && /^(Start|Model)Error$/.test(thrown.name))) throw thrown;
    screen.error(thrown.message);
    return 2;
  }
}
