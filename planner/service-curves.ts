/**
 * ServiceCurves: how long a host takes for the steps of a batcher, as it was measured, and what the way to it and back adds; a record that can be
 * kept as JSON and used again.
 */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { PlanningError } from './planning-error.ts';

const Ms = z.number().min(0).max(1e9);
const Share = z.number().min(0.1).max(100);
const Count = z.int().min(1).max(1e9);

/** Of a curve, whose places may come in any order; a place twice would have two values. */
function points<Axis extends string, Shape extends Record<Axis, z.ZodType<number>>>(axis: Axis, shape: Shape) {
  return z
    .array(z.strictObject(shape))
    .refine(
      list => new Set(list.map(point => (point as Record<Axis, number>)[axis])).size === list.length,
      `two points have the same ${axis}`,
    );
}

/** What a product's path adds to the engine's own times. All of it measured, none of it fitted to a replay. */
export const PathCosts = z.strictObject({
  /** From a client's request to the scheduler of an idle batcher: gateway, queue, tokenizer. */
  arrivalMs: Ms,
  /** From a sampled token to the client. */
  deliveryMs: Ms,
  /** Between two jobs that one batcher takes off the queue, as far as arrivalMs does not have it already. */
  fetchMs: Ms,
  /** What a request takes of a batcher's time once, besides its tokens: its job, prompt and end. */
  requestMs: Ms,
  /** A prefill chunk takes so many times as long as the engine's run alone: in a step by itself, and in one with streams. */
  prefillShare: z.strictObject({ alone: Share, beside: Share }),
  /** A step of so many streams takes so much longer than the engine's run alone: sampling, text, events, and all others on its processors. */
  steps: points('rows', { rows: Count, extraMs: z.number().min(-1e6).max(1e6) }),
});
export type PathCosts = z.infer<typeof PathCosts>;

export const ServiceCurves = z.strictObject({
  version: z.literal(3),
  host: z.string(),
  model: z.string(),
  threads: Count,
  measuredAt: z.string(),
  contextTokens: Count,
  /** Tokens of keys and values that a batcher has room for. */
  kvTokens: Count,
  /** A decode step of so many rows: at no context, and for each token of context of all rows together. */
  decode: points('rows', { rows: Count, ms: Ms, msPerContextToken: Ms }).min(1),
  /** A prefill chunk of so many tokens at the start of a prompt. */
  prefill: points('tokens', { tokens: Count, ms: Ms }).min(2),
  /** What a chunk takes longer with tokens before it: for each of those, and for each pair of one of those and one of its own. */
  prefillPast: z.strictObject({ msPerPastToken: Ms, msPerPair: Ms }),
  /** Copying keys and values of a token, between rows or from and to the prefix store. */
  copyMsPerToken: Ms,
  path: PathCosts,
  /** Of the template, which all prompts of a chat begin with. */
  templateTokens: z.int().min(0),
});
export type ServiceCurves = z.infer<typeof ServiceCurves>;

/** Nothing but the engine. */
export const NO_PATH: PathCosts = {
  arrivalMs: 0,
  deliveryMs: 0,
  fetchMs: 0,
  requestMs: 0,
  prefillShare: { alone: 1, beside: 1 },
  steps: [],
};

/** How many times as long as by its curves a host takes just now. */
export interface Paces {
  /** For prefill chunks in steps by themselves, and in those with streams. */
  alone: number;
  beside: number;
  /** For all else: decode runs, and what is around the engine. */
  streams: number;
}

/** Of the same host at these paces. */
export function curvesAtPaces(curves: ServiceCurves, { alone, beside, streams }: Paces): ServiceCurves {
  const { path } = curves;
  return {
    ...curves,
    decode: curves.decode.map(({ rows, ms, msPerContextToken }) => ({
      rows,
      ms: streams * ms,
      msPerContextToken: streams * msPerContextToken,
    })),
    copyMsPerToken: streams * curves.copyMsPerToken,
    path: {
      ...{ arrivalMs: streams * path.arrivalMs, deliveryMs: streams * path.deliveryMs, fetchMs: streams * path.fetchMs },
      requestMs: streams * path.requestMs,
      prefillShare: { alone: alone * path.prefillShare.alone, beside: beside * path.prefillShare.beside },
      steps: path.steps.map(({ rows, extraMs }) => ({ rows, extraMs: streams * extraMs })),
    },
  };
}

/** Throws PlanningError that names the file and the field. */
export async function readServiceCurves(path: string): Promise<ServiceCurves> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new PlanningError(`no service curves at ${path} (${error.code}); npx sluice plan --host measured makes them`);
  });
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new PlanningError(`${path} is not JSON`);
  }
  const parsed = ServiceCurves.safeParse(json);
  if (parsed.success) return ordered(parsed.data);
  const [issue] = parsed.error.issues;
  throw new PlanningError(`${path} holds no service curves: ${issue?.path.join('.') || 'the whole'}: ${issue?.message}`);
}

function ordered(curves: ServiceCurves): ServiceCurves {
  return {
    ...curves,
    decode: curves.decode.toSorted((a, b) => a.rows - b.rows),
    prefill: curves.prefill.toSorted((a, b) => a.tokens - b.tokens),
    path: { ...curves.path, steps: curves.path.steps.toSorted((a, b) => a.rows - b.rows) },
  };
}
