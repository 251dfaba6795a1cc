/** TraceSettings: which trace is taken, how long its requests are made, how they come, and what is promised to each. */
import { ARRIVAL_KINDS } from '../planner/arrivals.ts';
import { TRACE_NAMES } from '../planner/trace-file.ts';
import type { SettingSpecs } from './settings.ts';

const MINUTE = 60_000;

export const traceSettings = {
  trace: { kind: 'text', default: 'azure-conversation', help: `${TRACE_NAMES.join(', ')}, or a file in the form of one of them` },
  traces: { kind: 'text', default: '', help: 'folder of the named traces' },
  scale: {
    kind: 'number',
    default: 15,
    min: 0,
    max: 100,
    help: "percent of the trace's lengths; 0 for as much as the model's context takes",
  },
  arrivals: { kind: 'choice', default: 'poisson', of: ARRIVAL_KINDS, help: 'independent users, or the bursts of the trace' },
  'ttft-slo': { kind: 'duration', default: 2_000, min: 1, max: 60 * MINUTE, help: 'objective for the time to first token' },
  'tpot-slo': { kind: 'duration', default: 100, min: 1, max: MINUTE, help: 'objective for the time per output token, mean of a request' },
} as const satisfies SettingSpecs;
