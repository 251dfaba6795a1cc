/** Limits: what a tenant or a key may have; absent means as much as the gateway itself can give. */
export interface Limits {
  requestsPerMinute?: number;
  /** Prompt and generated tokens together. */
  tokensPerMinute?: number;
  concurrentRequests?: number;
  /** Of a day in UTC. */
  tokensPerDay?: number;
}

/** Stands for an absent limit, in the headers too. It is enforced like any other, so what the headers say is true. */
export const CEILING = 1_000_000_000;

export const NO_LIMITS: Limits = Object.freeze({});

/** Whether answers must be bounded for the limits to hold. */
export function hasTokenLimit(limits: Limits): boolean {
  return limits.tokensPerMinute !== undefined || limits.tokensPerDay !== undefined;
}

/** A change to limits: null takes one away, absent leaves it. */
export type LimitsChange = { [K in keyof Limits]?: number | null | undefined };

export function changedLimits(limits: Limits, change: LimitsChange): Limits {
  const merged = { ...limits, ...withoutAbsent(change) };
  return Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== null)) as Limits;
}

function withoutAbsent(change: LimitsChange): LimitsChange {
  return Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined));
}
