import { NO_PATH, type ServiceCurves } from '../../planner/service-curves.ts';

/** A host that never was, about as fast as a small one. */
export const CURVES: ServiceCurves = {
  ...{ version: 3, host: 'nowhere', model: 'none', threads: 2, measuredAt: '2026-01-01T00:00:00.000Z' },
  ...{ contextTokens: 2_048, kvTokens: 40_000, templateTokens: 0, copyMsPerToken: 0.01 },
  decode: [
    { rows: 1, ms: 16, msPerContextToken: 0.001 },
    { rows: 8, ms: 40, msPerContextToken: 0.001 },
    { rows: 32, ms: 140, msPerContextToken: 0.002 },
  ],
  prefill: [
    { tokens: 16, ms: 60 },
    { tokens: 128, ms: 400 },
    { tokens: 512, ms: 1_500 },
  ],
  prefillPast: { msPerPastToken: 0.02, msPerPair: 0.001 },
  path: { ...NO_PATH, arrivalMs: 6, deliveryMs: 3, fetchMs: 2, steps: [{ rows: 1, extraMs: 2 }] },
};
