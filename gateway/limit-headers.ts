/** LimitHeaders: OpenAI's six headers, by which a client learns what its key may still have. */
import type { Standing } from './tenant/account.ts';

export function limitHeaders({ requests, tokens }: Standing): Record<string, string> {
  return {
    'x-ratelimit-limit-requests': String(requests.limit),
    'x-ratelimit-limit-tokens': String(tokens.limit),
    'x-ratelimit-remaining-requests': String(requests.remaining),
    'x-ratelimit-remaining-tokens': String(tokens.remaining),
    'x-ratelimit-reset-requests': duration(requests.resetMs),
    'x-ratelimit-reset-tokens': duration(tokens.resetMs),
  };
}

/** As OpenAI writes it: `120ms`, `1.5s`, `1m1s`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  const hundredths = Math.round(ms / 10);
  const minutes = Math.floor(hundredths / 6_000);
  const seconds = (hundredths - minutes * 6_000) / 100;
  return minutes === 0 ? `${seconds}s` : `${minutes}m${seconds}s`;
}
