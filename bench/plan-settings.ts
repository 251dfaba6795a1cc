/** PlanSettings: what the capacity planner and its test against reality are told alike, and what of it a simulated batcher wants to know. */
import type { ServiceCurves } from '../planner/service-curves.ts';
import { DEFAULT_SIMULATED, type SimulatedSettings } from '../planner/simulated-batcher.ts';
import type { Trace } from '../planner/trace.ts';
import { type AdmissionSettings, DEFAULT_ADMISSION } from '../shared/admission.ts';
import { commonSettings } from './common-settings.ts';
import type { TraceLimits } from './scaled-trace.ts';
import { durationText, type SettingSpecs, type SettingsOf } from './settings.ts';
import { traceSettings } from './trace-settings.ts';

const MINUTE = 60_000;
/** That a batcher takes. */
const LEAST_ITL_MS = 10;
/** Of a prompt, besides its template. */
const LEAST_CONTENT_TOKENS = 16;

export const planSettings = {
  ...commonSettings,
  ...traceSettings,
  attainment: { kind: 'number', default: 90, min: 1, max: 100, help: 'percent of the requests that must keep both objectives' },
  host: { kind: 'text', default: '', help: 'measured, or a file with service curves; empty for those kept from the last time' },
  'max-running': { kind: 'count', default: 32, min: 2, max: 1024, help: 'sequences that a batcher computes at once' },
  'max-batched-tokens': { kind: 'count', default: 512, min: 16, max: 1 << 20, help: 'tokens of one step' },
  'itl-slo': {
    kind: 'duration',
    // A stream that only keeps to its batcher's bound is not to miss its own objective by that.
    default: {
      text: `${durationText(DEFAULT_SIMULATED.itlSloMs)}, or --tpot-slo where that is shorter`,
      from: others => Math.max(LEAST_ITL_MS, Math.min(DEFAULT_SIMULATED.itlSloMs, Math.floor(others['tpot-slo'] as number))),
    },
    min: LEAST_ITL_MS,
    max: MINUTE,
    help: "a batcher's bound on the time between two tokens beside a prefill",
  },
  'max-wait': {
    kind: 'duration',
    default: DEFAULT_ADMISSION.maxWaitMs,
    min: 0,
    max: 24 * 60 * MINUTE,
    help: 'SLUICE_MAX_WAIT_MS: the longest wait, as a gateway estimates it, with which it lets a request in',
  },
} as const satisfies SettingSpecs;

export type PlanSettings = SettingsOf<typeof planSettings>;

export function traceLimits(curves: ServiceCurves): TraceLimits {
  return { contextTokens: curves.contextTokens, leastPromptTokens: curves.templateTokens + LEAST_CONTENT_TOKENS };
}

export function simulatedSettings(settings: PlanSettings, curves: ServiceCurves, trace: Trace): SimulatedSettings {
  return {
    ...{ maxRunning: settings['max-running'], maxBatchedTokens: settings['max-batched-tokens'], itlSloMs: settings['itl-slo'] },
    ...{ ttftSloMs: undefined, prefetch: DEFAULT_SIMULATED.prefetch, hasPrefixStore: trace.blockTokens !== undefined },
    ...{ contextTokens: curves.contextTokens, kvTokens: curves.kvTokens },
  };
}

export function admissionSettings(settings: Pick<PlanSettings, 'max-wait'>): AdmissionSettings {
  return { ...DEFAULT_ADMISSION, maxWaitMs: Math.round(settings['max-wait']) };
}

/** What a gateway is told that is to be the simulated one. */
export function gatewayBindings(settings: Pick<PlanSettings, 'max-wait'>): Record<string, string> {
  return { SLUICE_MAX_WAIT_MS: String(admissionSettings(settings).maxWaitMs) };
}

/** Options of a batcher that is to be the simulated one. */
export function batcherArguments(settings: Pick<PlanSettings, 'max-running' | 'max-batched-tokens' | 'itl-slo'>): string[] {
  return (['max-running', 'max-batched-tokens', 'itl-slo'] as const).flatMap(name => [`--${name}`, String(settings[name])]);
}
