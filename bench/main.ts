/**
 * Main of the benches: `bench NAME [--json] [--check] [--option value …]`. Prints the report on stdout and progress on stderr.
 * Exit code 0; 1 when a bar does not hold (with --check) or the run failed; 2 for a mistake in the command line; 130 on Ctrl-C.
 */
import { PlanningError } from '../planner/planning-error.ts';
import type { Bench } from './bench.ts';
import { Children } from './children.ts';
import { readHost } from './host.ts';
import { BENCHES } from './registry.ts';
import { barText, failedBars, type Report, reportJson, reportText } from './report.ts';
import { readSettings, type SettingSpecs, settingsHelp, UsageError } from './settings.ts';

const INTERRUPTED = 130;

interface CommandLine {
  name: string | undefined;
  isJson: boolean;
  isCheck: boolean;
  isHelp: boolean;
  given: Record<string, string>;
}

export async function main(args: readonly string[]): Promise<number> {
  try {
    const line = parseArgs(args);
    if (line.name === undefined) {
      process.stdout.write(`${overview()}\n`);
      return line.isHelp ? 0 : 2;
    }
    const registered = Object.hasOwn(BENCHES, line.name) ? BENCHES[line.name] : undefined;
    if (!registered) throw new UsageError(`no bench is called '${line.name}'\n${overview()}`);
    const bench = await registered.load();
    if (line.isHelp) {
      process.stdout.write(`${[`bench ${line.name}: ${registered.summary}`, ...settingsHelp(bench.settings)].join('\n')}\n`);
      return 0;
    }
    return await measure(line, bench);
  } catch (error) {
    if (error instanceof UsageError || error instanceof PlanningError) {
      process.stderr.write(`${error.message}\n`);
      return 2;
    }
    process.stderr.write(`${error instanceof Error ? (process.env.SLUICE_DEBUG ? error.stack : error.message) : String(error)}\n`);
    return 1;
  }
}

async function measure(line: CommandLine, bench: Bench<SettingSpecs>): Promise<number> {
  const settings = readSettings(bench.settings, line.given);
  const host = readHost();
  const progress = (text: string) => process.stderr.write(`${text}\n`);
  const disturbance =
    host.loadAverage > host.coreCount / 4
      ? [`load average was ${host.loadAverage.toFixed(2)} before the run: other work disturbs the figures, so they are indicative only`]
      : [];
  for (const note of disturbance) progress(note);
  const children = new Children();
  let isInterrupted = false;
  // A second signal finds the default handler and ends the process at once.
  const interrupt = () => {
    isInterrupted = true;
    void children.endAll().finally(() => process.exit(INTERRUPTED));
  };
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
  try {
    const findings = await bench.run({ settings, progress, children });
    const report: Report = {
      bench: line.name!,
      measuredAt: new Date().toISOString(),
      host,
      settings: shownSettings(settings),
      ...findings,
      notes: [...(findings.notes ?? []), ...disturbance],
    };
    process.stdout.write(`${line.isJson ? reportJson(report) : reportText(report)}\n`);
    return line.isCheck ? judge(report) : 0;
  } catch (error) {
    // What was ended under its hands is no failure of the bench.
    if (isInterrupted) return INTERRUPTED;
    throw error;
  } finally {
    await children.endAll();
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
  }
}

function shownSettings(settings: Record<string, number | string | readonly number[]>): Record<string, number | string> {
  const shown = (value: number | string | readonly number[]) =>
    value === '' ? 'default' : typeof value === 'object' ? value.join(',') : value;
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, shown(value)]));
}

/** The failed figures on stderr, a line each, so that --json keeps stdout to the JSON. */
function judge(report: Report): number {
  const failed = failedBars(report);
  for (const bar of failed) process.stderr.write(`failed: ${barText(bar)}\n`);
  return failed.length > 0 ? 1 : 0;
}

function parseArgs(args: readonly string[]): CommandLine {
  const line: CommandLine = { name: undefined, isJson: false, isCheck: false, isHelp: false, given: {} };
  const rest = [...args];
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === '--json') line.isJson = true;
    else if (arg === '--check') line.isCheck = true;
    else if (arg === '--help' || arg === '-h') line.isHelp = true;
    else if (arg.startsWith('--')) {
      const [name, inline] = splitOption(arg);
      const value = inline ?? rest.shift();
      if (value === undefined) throw new UsageError(`--${name} needs a value`);
      line.given[name] = value;
    } else if (line.name === undefined) line.name = arg;
    else throw new UsageError(`one bench at a time: '${line.name}' or '${arg}'`);
  }
  return line;
}

function splitOption(arg: string): [string, string | undefined] {
  const equals = arg.indexOf('=');
  return equals < 0 ? [arg.slice(2), undefined] : [arg.slice(2, equals), arg.slice(equals + 1)];
}

function overview(): string {
  const width = Math.max(...Object.keys(BENCHES).map(name => name.length));
  return [
    'usage: npm run bench -- NAME [--json] [--check] [--option value …]; NAME --help lists the options',
    ...Object.entries(BENCHES).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`),
  ].join('\n');
}
