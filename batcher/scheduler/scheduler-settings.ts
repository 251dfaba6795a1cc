/**
 * SchedulerSettings: every knob of the scheduler, each with default, bounds, unit and what it does.
 * Guarantee: a record that schedulerSettings returned obeys all rules; a bad value is refused with the rule's name.
 */

interface Knob {
  readonly default: number;
  readonly least: number;
  readonly most: number;
  readonly unit: string;
  readonly about: string;
  /** Fractions are allowed. */
  readonly isRatio?: true;
}

export const SCHEDULER_KNOBS = {
  maxRunning: { default: 32, least: 1, most: 4096, unit: 'rows', about: 'Sequences computed at once; at most the rows of the KV cache.' },
  maxBatchedTokens: {
    default: 512,
    least: 16,
    most: 1_048_576,
    unit: 'tokens',
    about: 'Tokens computed in one step, decode and prefill together; at least maxRunning + 16, so that prefill always moves.',
  },
  chunkTokens: {
    default: 128,
    least: 4,
    most: 1_048_576,
    unit: 'tokens',
    about: 'Tokens of one prefill chunk, which bounds the extra inter-token latency that a long prompt causes; set anew while running.',
  },
  scoringChunkTokens: {
    default: 64,
    least: 4,
    most: 1_048_576,
    unit: 'tokens',
    about: 'Tokens of one chunk of a prompt that is scored: the logits of all of them are in memory at once.',
  },
  maxChunksPerStep: { default: 1, least: 1, most: 64, unit: 'chunks', about: 'Prefill chunks in one step.' },
  overtakeLimit: {
    default: 1,
    least: 0,
    most: 64,
    unit: 'chunks',
    about: 'Chunks in a row that higher-class or shorter prompts may take before the longest-running prefill gets its turn.',
  },
  admissionWatermark: {
    default: 0.02,
    least: 0,
    most: 0.5,
    unit: 'share of the KV budget',
    about: 'Kept free when a sequence is admitted beside others, so that their growth does not preempt it at once.',
    isRatio: true,
  },
  spareShare: {
    default: 0.03,
    least: 0,
    most: 1,
    unit: 'share of the KV budget',
    about:
      'Memory that rows keep, while the budget has it free, when nobody holds it any more: new pages cost several times what fills them.',
    isRatio: true,
  },
  maxWaiting: { default: 10_000, least: 1, most: 10_000_000, unit: 'requests', about: 'Waiting requests; more are refused.' },
  fairnessBoundTokens: {
    default: 4_096,
    least: 0,
    most: 1_000_000_000,
    unit: 'tokens per weight',
    about: 'How far a deadline may put a tenant ahead of the least served one that waits in its class.',
  },
  ageingMs: {
    default: 10_000,
    least: 0,
    most: 86_400_000,
    unit: 'ms',
    about: 'Waiting time after which a lower class gets its share of admissions, and a request without deadline its turn in its tenant.',
  },
  agedShare: {
    default: 4,
    least: 1,
    most: 1_000,
    unit: 'admissions',
    about: 'One of this many admissions goes to a lower class that waits too long.',
  },
  minDecodeRows: {
    default: 2,
    least: 1,
    most: 2,
    unit: 'rows',
    about: 'Rows that the engine computes at least in a decode batch; those beyond the batch hold nothing, so that it may overwrite them.',
  },
  maxDraftTokens: { default: 8, least: 0, most: 64, unit: 'tokens', about: 'Draft tokens verified at once for one sequence.' },
  speculationMaxRunning: { default: 4, least: 0, most: 4096, unit: 'sequences', about: 'Decoding sequences up to which drafts are taken.' },
  fillerCostTokens: {
    default: 256,
    least: 0,
    most: 1_048_576,
    unit: 'tokens',
    about: 'A row computed for nothing in a decode batch costs as much as copying this many tokens to another row.',
  },
} as const satisfies Record<string, Knob>;

export type SchedulerSettings = { readonly [Name in keyof typeof SCHEDULER_KNOBS]: number };

/** The defaults with these values instead. Throws RangeError naming the knob and its rule. */
export function schedulerSettings(values: Partial<SchedulerSettings> = {}): SchedulerSettings {
  const settings: Record<string, number> = {};
  for (const name of Object.keys(values)) {
    if (!Object.hasOwn(SCHEDULER_KNOBS, name)) throw new RangeError(`The scheduler has no setting "${name}".`);
  }
  for (const [name, knob] of Object.entries<Knob>(SCHEDULER_KNOBS)) {
    const value = values[name as keyof SchedulerSettings] ?? knob.default;
    if (!(value >= knob.least && value <= knob.most) || !(knob.isRatio || Number.isInteger(value)))
      throw new RangeError(
        `${name} must be a ${knob.isRatio ? 'number' : 'whole number'} from ${knob.least} to ${knob.most} (${knob.unit}), not ${value}.`,
      );
    settings[name] = value;
  }
  const valid = settings as SchedulerSettings;
  if (valid.maxBatchedTokens < valid.maxRunning + 16)
    throw new RangeError(
      `maxBatchedTokens must be at least maxRunning + 16 = ${valid.maxRunning + 16}, so that prefill moves beside a full decode batch, not ${valid.maxBatchedTokens}.`,
    );
  return valid;
}
