/** LimitOptions: the limits and the weight of a key or tenant as options of a command, and how long a key is good. */
import { type Command, InvalidArgumentError } from 'commander';
import type { LimitsIn, LimitsOut } from '../../shared/admin-wire.ts';

const MOST = 1_000_000_000;

export function withLimits(command: Command): Command {
  return command
    .option('--rpm <count>', 'requests per minute; none takes the limit away', limit)
    .option('--tpm <count>', 'tokens per minute, prompt and answer together', limit)
    .option('--concurrent <count>', 'requests that run at once', limit)
    .option('--tpd <count>', 'tokens per day in UTC', limit);
}

/** Undefined when none is named. */
export function limitsIn(options: Record<string, unknown>): LimitsIn | undefined {
  const limits = {
    requests_per_minute: options.rpm,
    tokens_per_minute: options.tpm,
    concurrent_requests: options.concurrent,
    tokens_per_day: options.tpd,
  };
  const given = Object.entries(limits).filter(([, value]) => value !== undefined);
  return given.length === 0
    ? undefined
    : (Object.fromEntries(given.map(([name, value]) => [name, value === 'none' ? null : value])) as LimitsIn);
}

export const LIMIT_HEADINGS = ['REQUESTS/MIN', 'TOKENS/MIN', 'CONCURRENT', 'TOKENS/DAY'];

export function limitCells(limits: LimitsOut): (number | null)[] {
  return [limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests, limits.tokens_per_day];
}

/** Commander keeps no null. */
function limit(text: string): number | 'none' {
  if (text === 'none') return text;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= 1 && value <= MOST) return value;
  throw new InvalidArgumentError(`It must be a whole number from 1 to ${MOST}, or none.`);
}

export function weight(text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && value >= 0.01 && value <= 100) return value;
  throw new InvalidArgumentError('It must be a number from 0.01 to 100.');
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { m: 60, h: 3_600, d: 86_400 };

/** `30d`, `12h`, `90m` from now, as epoch seconds; `never` takes an expiry away. */
export function expiry(text: string): number | 'never' {
  if (text === 'never') return text;
  const [, count, unit] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  if (count === undefined || unit === undefined || Number(count) === 0) {
    throw new InvalidArgumentError('It must be a number with m, h or d behind it, as in 30d, or never.');
  }
  return Math.floor(Date.now() / 1000) + Number(count) * UNIT_SECONDS[unit]!;
}

export function expiryIn(options: { expiresIn?: number | 'never' }): number | null | undefined {
  return options.expiresIn === 'never' ? null : options.expiresIn;
}
