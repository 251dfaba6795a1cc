/**
 * Settings of a bench: each with default, bounds and unit, given on the command line as --name value.
 * A bad value stops the run before anything is measured, naming the rule.
 */

export type SettingSpec =
  | { kind: 'count'; default: number; min: number; max: number; help: string }
  | { kind: 'counts'; default: readonly number[]; min: number; max: number; help: string }
  | { kind: 'text'; default: string; help: string };

export type SettingSpecs = Record<string, SettingSpec>;

/** The values that belong to a table of specs. */
export type SettingsOf<S extends SettingSpecs> = {
  [K in keyof S]: S[K] extends { kind: 'count' } ? number : S[K] extends { kind: 'counts' } ? readonly number[] : string;
};

/** The person's mistake, told in one line; exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

/** `given` holds the texts from the command line by setting name. */
export function readSettings<S extends SettingSpecs>(specs: S, given: Record<string, string>): SettingsOf<S> {
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(specs, name)) {
      throw new UsageError(
        `unknown option --${name}; this bench takes ${
          Object.keys(specs)
            .map(known => `--${known}`)
            .join(', ') || 'none'
        }`,
      );
    }
  }
  const values = Object.entries(specs).map(([name, spec]) => [name, parseValue(name, spec, given[name])]);
  return Object.fromEntries(values) as SettingsOf<S>;
}

function parseValue(name: string, spec: SettingSpec, text: string | undefined): number | readonly number[] | string {
  if (text === undefined) return spec.default;
  if (spec.kind === 'text') return text;
  if (spec.kind === 'count') return countOf(name, spec, text);
  return text.split(',').map(part => countOf(name, spec, part));
}

function countOf(name: string, spec: { min: number; max: number }, text: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isInteger(value) || value < spec.min || value > spec.max) {
    throw new UsageError(`--${name} must be a whole number from ${spec.min} to ${spec.max}, not '${text}'`);
  }
  return value;
}

export function settingsHelp(specs: SettingSpecs): string[] {
  return Object.entries(specs).map(([name, spec]) => {
    const shown = spec.kind === 'counts' ? spec.default.join(',') : String(spec.default);
    return `  --${name.padEnd(14)} ${spec.help}${shown === '' ? '' : ` (default ${shown})`}`;
  });
}
