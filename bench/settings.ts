/**
 * Settings of a bench: each with default, bounds and unit, given on the command line as --name value.
 * A bad value stops the run before anything is measured, naming the rule.
 */

export type SettingSpec =
  | { kind: 'count'; default: number; min: number; max: number; help: string }
  | { kind: 'counts'; default: readonly number[]; min: number; max: number; help: string }
  | { kind: 'number'; default: number; min: number; max: number; help: string }
  /** Milliseconds; given as `250ms`, `2s`, `5m`, or a bare number of milliseconds. */
  | { kind: 'duration'; default: number | DerivedDefault; min: number; max: number; help: string }
  | { kind: 'choice'; default: string; of: readonly string[]; help: string }
  | { kind: 'text'; default: string; help: string };

/** A default that follows from settings that have none of this kind; `text` is what the help shows for it. */
export interface DerivedDefault {
  text: string;
  from(others: Readonly<Record<string, unknown>>): number;
}

export type SettingSpecs = Record<string, SettingSpec>;

/** The values that belong to a table of specs. */
export type SettingsOf<S extends SettingSpecs> = {
  [K in keyof S]: S[K] extends { kind: 'count' | 'number' | 'duration' }
    ? number
    : S[K] extends { kind: 'counts' }
      ? readonly number[]
      : S[K] extends { kind: 'choice'; of: readonly (infer Choice extends string)[] }
        ? Choice
        : string;
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
  const values = Object.fromEntries(Object.entries(specs).map(([name, spec]) => [name, parseValue(name, spec, given[name])]));
  const derived = Object.entries(values).map(([name, value]) => [name, isDerived(value) ? value.from(values) : value]);
  return Object.fromEntries(derived) as SettingsOf<S>;
}

type Value = number | readonly number[] | string;

function isDerived(value: Value | DerivedDefault): value is DerivedDefault {
  return typeof value === 'object' && 'from' in value;
}

function parseValue(name: string, spec: SettingSpec, text: string | undefined): Value | DerivedDefault {
  if (text === undefined) return spec.default;
  switch (spec.kind) {
    case 'text':
      return text;
    case 'choice':
      if (spec.of.includes(text)) return text;
      throw new UsageError(`--${name} must be one of ${spec.of.join(', ')}, not '${text}'`);
    case 'count':
      return countOf(name, spec, text);
    case 'counts':
      return text.split(',').map(part => countOf(name, spec, part));
    case 'number':
      return numberOf(name, spec, text);
    case 'duration':
      return durationOf(name, spec, text);
  }
}

function numberOf(name: string, spec: { min: number; max: number }, text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && value >= spec.min && value <= spec.max) return value;
  throw new UsageError(`--${name} must be a number from ${spec.min} to ${spec.max}, not '${text}'`);
}

const UNIT_MS: Readonly<Record<string, number>> = { '': 1, ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

function durationOf(name: string, spec: { min: number; max: number }, text: string): number {
  const [, digits, unit = ''] = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text.trim()) ?? [];
  const value = digits === undefined ? Number.NaN : Number(digits) * UNIT_MS[unit]!;
  if (value >= spec.min && value <= spec.max) return value;
  throw new UsageError(
    `--${name} must be a time as 250ms, 2s or 5m, from ${durationText(spec.min)} to ${durationText(spec.max)}, not '${text}'`,
  );
}

/** In the largest unit that keeps it whole. */
export function durationText(ms: number): string {
  for (const unit of ['h', 'm', 's'] as const)
    if (ms >= UNIT_MS[unit]! && ms % UNIT_MS[unit]! === 0) return `${ms / UNIT_MS[unit]!}${unit}`;
  return `${ms}ms`;
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
    const shown = shownDefault(spec);
    const choices = spec.kind === 'choice' ? ` (${spec.of.join(', ')})` : '';
    return `  --${name.padEnd(14)} ${spec.help}${choices}${shown === '' ? '' : ` (default ${shown})`}`;
  });
}

function shownDefault(spec: SettingSpec): string {
  if (spec.kind === 'counts') return spec.default.join(',');
  if (isDerived(spec.default)) return spec.default.text;
  return spec.kind === 'duration' ? durationText(spec.default) : String(spec.default);
}
