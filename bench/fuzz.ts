/**
 * Bench `fuzz`: hostile inputs at every place where the product takes in what others wrote, the same ones for the same seed. An input may be refused
 * in words or turn out harmless; a crash, a hang, an answer of 5xx that is not a stated one, or memory that grows is a fault.
 */
import { readFile } from 'node:fs/promises';
import { type BenchRun, bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { Dice } from './fuzz/dice.ts';
import { IsolatedSurface } from './fuzz/isolated-surface.ts';
import {
  LIVE_SURFACES,
  type LiveSurfaceName,
  PART_SURFACES,
  type PartSurfaceName,
  SURFACE_NAMES,
  type SurfaceName,
} from './fuzz/surfaces.ts';
import { type BenchModel, benchModel } from './model.ts';
import type { Findings } from './report.ts';
import { type SettingSpecs, UsageError } from './settings.ts';
import { type Stack, startStack } from './stack.ts';

/** So that a body that asks for all that fits is answered in a moment. */
const CONTEXT_TOKENS = 128;
const SHOWN_FAULTS = 10;
/** Half of the first surface warms a process up (a JavaScript heap grows before it is swept); what it then grows by over all others. */
const MAX_GROWTH_BYTES = 128 * 2 ** 20;
const WARM_SHARE = 0.5;

const SETTINGS = {
  ...commonSettings,
  seconds: { kind: 'count', default: 60, min: 1, max: 86_400, help: 'for all surfaces together' },
  inputs: {
    kind: 'count',
    default: 0,
    min: 0,
    max: 1e9,
    help: 'of each surface, whatever time they take; 0: as many as the seconds allow',
  },
  seed: { kind: 'count', default: 1, min: 1, max: 0x7fffffff, help: 'of all inputs' },
  first: {
    kind: 'count',
    default: 0,
    min: 0,
    max: 1e9,
    help: 'number of the first input of each surface: that of a fault, to see it again',
  },
  surfaces: { kind: 'text', default: '', help: `which, separated by commas; empty for all: ${SURFACE_NAMES.join(', ')}` },
} as const satisfies SettingSpecs;

export const fuzzBench = bench({
  settings: SETTINGS,
  async run(run) {
    const names = surfaceNames(run.settings.surfaces);
    const model = await benchModel(run.settings, run.progress);
    return findings(model, await new FuzzRun(run, model, names).measure());
  },
});

function surfaceNames(given: string): SurfaceName[] {
  if (given === '') return [...SURFACE_NAMES];
  return given.split(',').map(name => {
    if (!SURFACE_NAMES.includes(name as SurfaceName)) throw new UsageError(`--surfaces: '${name}' is none of ${SURFACE_NAMES.join(', ')}`);
    return name as SurfaceName;
  });
}

interface Fuzzed {
  what: string;
  inputCount: number;
  outcomes: Map<string, number>;
  faults: string[];
}

interface Measured {
  surfaces: Fuzzed[];
  /** Of the product, where it ran. */
  processes: { name: string; grownBytes: number; isSame: boolean }[];
}

class FuzzRun {
  readonly #run: BenchRun<typeof SETTINGS>;
  readonly #model: BenchModel;
  readonly #names: readonly SurfaceName[];

  constructor(run: BenchRun<typeof SETTINGS>, model: BenchModel, names: readonly SurfaceName[]) {
    this.#run = run;
    this.#model = model;
    this.#names = names;
  }

  async measure(): Promise<Measured> {
    const surfaces: Fuzzed[] = [];
    for (const name of this.#names) if (Object.hasOwn(PART_SURFACES, name)) surfaces.push(await this.#fuzzPart(name as PartSurfaceName));
    const live = this.#names.filter(name => Object.hasOwn(LIVE_SURFACES, name)) as LiveSurfaceName[];
    if (live.length === 0) return { surfaces, processes: [] };
    const { settings, progress, children } = this.#run;
    await using stack = await startStack({
      ...{ model: this.#model, threads: settings.threads, progress, children },
      batcherArguments: ['--context', String(CONTEXT_TOKENS)],
    });
    const before = pidsOf(stack);
    const warm = new Map<string, number>();
    for (const name of live) {
      const surface = LIVE_SURFACES[name];
      const open = await surface.open(stack);
      let isWarm = false;
      surfaces.push(
        await this.#feed({ name, what: surface.what, width: open.width ?? 1 }, async (seed, share) => {
          const outcome = await open.feed(new Dice(seed));
          if (!isWarm && name === live[0] && share >= WARM_SHARE) {
            isWarm = true;
            for (const [part, pid] of before) warm.set(part, await residentBytes(pid));
          }
          return outcome;
        }),
      );
      await open.close?.();
    }
    const after = pidsOf(stack);
    const processes = await Promise.all(
      [...before].map(async ([name, pid]) => {
        const isSame = after.get(name) === pid;
        return { name, isSame, grownBytes: isSame ? (await residentBytes(pid)) - (warm.get(name) ?? 0) : Number.NaN };
      }),
    );
    return { surfaces, processes };
  }

  async #fuzzPart(name: PartSurfaceName): Promise<Fuzzed> {
    const { directory, kernelPath, name: modelName, manifest, ggufPath } = this.#model;
    const surface = new IsolatedSurface({ name, model: { directory, kernelPath, name: modelName, manifest, ggufPath } });
    try {
      return await this.#feed({ name, what: PART_SURFACES[name].what, width: 1 }, seed => surface.feed(seed));
    } finally {
      await surface.close();
    }
  }

  /** `share` of the way is behind it. */
  async #feed(
    { name, what, width }: { name: SurfaceName; what: string; width: number },
    feedOne: (seed: number, share: number) => Promise<string>,
  ): Promise<Fuzzed> {
    const { settings, progress } = this.#run;
    const fuzzed: Fuzzed = { what, inputCount: 0, outcomes: new Map(), faults: [] };
    const startedAt = performance.now();
    const limitMs = (settings.seconds * 1000) / this.#names.length;
    const share = () => (settings.inputs > 0 ? fuzzed.inputCount / settings.inputs : (performance.now() - startedAt) / limitMs);
    const feedOn = async () => {
      while (share() < 1) {
        const index = settings.first + fuzzed.inputCount++;
        try {
          const outcome = await feedOne(Math.imul(settings.seed, 0x01000193) + index, share());
          fuzzed.outcomes.set(outcome, (fuzzed.outcomes.get(outcome) ?? 0) + 1);
        } catch (error) {
          const fault = `${name} ${index}: ${error instanceof Error ? [error.message, error.cause ?? ''].join(' ') : String(error)}`;
          fuzzed.faults.push(fault);
          progress(`fault: ${fault}`);
        }
      }
    };
    await Promise.all(Array.from({ length: width }, feedOn));
    progress(
      `${name}: ${fuzzed.inputCount} inputs in ${((performance.now() - startedAt) / 1000).toFixed(1)} s, ${fuzzed.faults.length} faults`,
    );
    return fuzzed;
  }
}

function pidsOf(stack: Stack): Map<string, number> {
  return new Map([
    ['gateway', stack.gatewayPid() ?? 0],
    ...stack.batcherPids.map((pid, index) => [`batcher ${index + 1}`, pid] as const),
    ['Redis', stack.redisPid() ?? 0],
  ]);
}

async function residentBytes(pid: number): Promise<number> {
  return Number(/VmRSS:\s+(\d+) kB/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}

function findings(model: BenchModel, { surfaces, processes }: Measured): Findings {
  const faults = surfaces.flatMap(surface => surface.faults);
  return {
    title: 'Hostile inputs',
    versions: model.versions,
    tables: [
      {
        title: 'Surfaces',
        columns: ['surface', 'inputs', 'faults', 'outcomes'],
        rows: surfaces.map(({ what, inputCount, faults, outcomes }) => [
          what,
          String(inputCount),
          String(faults.length),
          [...outcomes]
            .sort((a, b) => b[1] - a[1])
            .map(([outcome, count]) => `${count} ${outcome}`)
            .join(', '),
        ]),
      },
      ...(processes.length === 0
        ? []
        : [
            {
              title: 'Processes',
              columns: ['process', 'the same at the end', 'grown by, MB'],
              rows: processes.map(({ name, isSame, grownBytes }) => [name, isSame ? 'yes' : 'no', (grownBytes / 2 ** 20).toFixed(0)]),
            },
          ]),
    ],
    figures: {
      surfaces: surfaces.map(({ what, inputCount, outcomes, faults }) => ({
        what,
        inputCount,
        outcomes: Object.fromEntries(outcomes),
        faults,
      })),
      processes,
    },
    bars: [
      { name: 'faults', value: faults.length, relation: '=', limit: 0 },
      ...processes.flatMap(({ name, isSame, grownBytes }) => [
        { name: `${name} ended`, value: isSame ? 0 : 1, relation: '=' as const, limit: 0 },
        { name: `${name} grown by, bytes`, value: grownBytes, relation: '<=' as const, limit: MAX_GROWTH_BYTES },
      ]),
    ],
    notes: faults.slice(0, SHOWN_FAULTS).map(fault => `fault: ${fault}`),
  };
}
