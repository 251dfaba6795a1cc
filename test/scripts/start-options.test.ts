import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import { readSettings } from '../../batcher/settings.ts';
import { defaultDataFolder } from '../../scripts/supervisor/data-folder.ts';
import { BATCHER_OPTIONS, readStartOptions } from '../../scripts/supervisor/start-options.ts';

const MODULE = pathToFileURL(join(import.meta.dirname, '../../scripts/supervisor/start-options.ts')).href;

describe('options', () => {
  it('have defaults', () => {
    expect(readStartOptions([], { XDG_DATA_HOME: '/data' })).toEqual({
      port: 8080,
      host: '127.0.0.1',
      model: undefined,
      weights: undefined,
      kernels: undefined,
      batcherCount: 1,
      batcherArguments: [],
      redisUrl: undefined,
      runtime: 'workerd',
      dataFolder: '/data/sluice',
    });
  });

  it('of the batcher are handed on as they were given', () => {
    const { batcherArguments } = readStartOptions(['--threads', '3', '--max-running', '8', '--spinning', 'off'], {});
    expect(batcherArguments).toEqual(['--threads', '3', '--spinning', 'off', '--max-running', '8']);
    const several = readStartOptions(['--public-prefix', 'a.txt', '--public-prefix', 'b.txt'], {});
    expect(several.batcherArguments).toEqual(['--public-prefix', 'a.txt', '--public-prefix', 'b.txt']);
  });

  it.each(BATCHER_OPTIONS)('%s is one that a batcher knows', flags => {
    const [name, form] = flags.split(' ') as [string, string];
    const value =
      { '<on|off>': 'off', '<size>': '512M', '<f16|f32>': 'f32', '<hermes|llama3|mistral>': 'llama3', '<think|none>': 'none' }[form] ??
      '31';
    const { batcherArguments } = readStartOptions([name, value], {});
    expect(batcherArguments).toEqual([name, value]);
    const settings = readSettings(['--model-dir', '/model', ...batcherArguments], {});
    expect(settings).not.toEqual({ ...readSettings(['--model-dir', '/model'], {}), batcherId: settings.batcherId });
  });

  it('win over REDIS_URL', () => {
    expect(readStartOptions([], { REDIS_URL: 'redis://a' }).redisUrl).toBe('redis://a');
    expect(readStartOptions(['--redis', 'redis://b'], { REDIS_URL: 'redis://a' }).redisUrl).toBe('redis://b');
    expect(readStartOptions([], { REDIS_URL: '' }).redisUrl).toBeUndefined();
  });

  function refusal(...args: string[]) {
    const program = `import { BATCHER_OPTIONS, readStartOptions } from ${JSON.stringify(MODULE)}; readStartOptions(process.argv.slice(1), {}); console.log('accepted');`;
    return spawnSync(process.execPath, ['--input-type=module', '-e', program, '--', ...args], { encoding: 'utf8' });
  }

  it.each([
    [['--port', '65536'], /--port.*from 0 to 65535/],
    [['--port', '8080x'], /--port/],
    [['--port', '-1'], /--port/],
    [['--batchers', '0'], /--batchers.*from 1/],
    [['--batchers', '1.5'], /--batchers/],
    [['--runtime', 'node'], /workerd, wrangler/],
    [['--weights', 'q2'], /q4, q8, f32/],
    [['--quality', 'best'], /exact, fast/],
    [['--no-such-option'], /unknown option/],
    [['word'], /too many arguments/],
  ])('%s are refused with the rule, exit code 2', (args, rule) => {
    const { status, stderr, stdout } = refusal(...args);
    expect(stderr).toMatch(rule);
    expect(stdout).toBe('');
    expect(status).toBe(2);
  });

  it('are explained by --help, exit code 0', () => {
    const { status, stdout } = refusal('--help');
    expect(status).toBe(0);
    for (const option of ['--port', '--host', '--model', '--weights', '--batchers', '--threads', '--redis', '--runtime', '--data'])
      expect(stdout).toContain(option);
  });
});

it('a relative XDG_DATA_HOME is ignored', () => {
  expect(defaultDataFolder({ XDG_DATA_HOME: 'relative' })).toMatch(/\.local\/share\/sluice$/);
});
