/**
 * Bench `chaos` (`npm run chaos`): mixed load on several batchers while random faults happen. Every request is one of a few seeded ones whose answers
 * were taken before, undisturbed and alone; an independent checker compares what each client has at the end with that answer, byte by byte.
 * Afterwards nothing of the requests may be left.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { type BenchRun, bench } from './bench.ts';
import { FAULT_NAMES, FAULTS, type FaultName, faultOrder } from './chaos/faults.ts';
import { HARD_PARAMETERS } from './chaos/hard-parameters.ts';
import { askUntilAnswered, type ChaosOutcome } from './chaos/resuming-client.ts';
import { commonSettings } from './common-settings.ts';
import { LeftoverProbe, type Leftovers } from './leftovers.ts';
import { type BenchModel, benchModel } from './model.ts';
import { PromptMaker } from './prompt-maker.ts';
import type { Findings } from './report.ts';
import { differingBytes, seededRequests } from './seeded-requests.ts';
import { type SettingSpecs, UsageError } from './settings.ts';
import { percentile } from './spread.ts';
import { type Stack, startStack } from './stack.ts';
import { randomSource } from './token-source.ts';

/** Between the end of one fault and the next, which waits besides until answers came again; but some come on the heels of the one before. */
const CALM_MS = { least: 500, most: 4_000 };
const CALM_ANSWERS = 2;
const CALM_PATIENCE_MS = 60_000;
const HEELS_SHARE = 0.25;
/** Of the requests: not streamed; left by their client in the middle. */
const WHOLE_SHARE = 0.2;
const LEAVING_SHARE = 0.15;
const LONGEST_PROMPT_TOKENS = 200;
/** How long parts may take to be all there again after the last fault. */
const RECOVERY_PATIENCE_MS = 60_000;
const POLL_MS = 250;

const SETTINGS = {
  ...commonSettings,
  minutes: { kind: 'count', default: 10, min: 0, max: 1440, help: 'time under load and faults; 0: until each fault happened once' },
  seed: { kind: 'count', default: 1, min: 1, max: 0x7fffffff, help: 'of the order and the moments of faults, and of the mix of requests' },
  batchers: { kind: 'count', default: 2, min: 1, max: 16, help: 'batcher processes' },
  clients: { kind: 'count', default: 8, min: 1, max: 512, help: 'requests at a time' },
  requests: { kind: 'count', default: 24, min: 1, max: 512, help: 'different requests that the load is made of' },
  faults: { kind: 'text', default: '', help: `which, separated by commas; empty for all: ${FAULT_NAMES.join(', ')}` },
} as const satisfies SettingSpecs;

export const chaosBench = bench({
  settings: SETTINGS,
  async run(run) {
    const names = faultNames(run.settings.faults);
    const model = await benchModel(run.settings, run.progress);
    return findings(model, await new ChaosRun(run, model, names).measure());
  },
});

function faultNames(given: string): FaultName[] {
  if (given === '') return [...FAULT_NAMES];
  return given.split(',').map(name => {
    if (!Object.hasOwn(FAULTS, name)) throw new UsageError(`--faults: '${name}' is none of ${FAULT_NAMES.join(', ')}`);
    return name as FaultName;
  });
}

interface Answer {
  texts: string[];
  finishReasons: (string | undefined)[];
}

interface Measured {
  outcomes: ChaosOutcome[];
  /** Of whole answers: those that are not the undisturbed ones. */
  alteredCount: number;
  faultCounts: Map<FaultName, number>;
  left: Leftovers;
  newKeys: string[];
  /** Connections to Redis when all was idle, before the first fault and after the last. */
  connections: { before: number; after: number };
  wallMs: number;
}

class ChaosRun {
  readonly #run: BenchRun<typeof SETTINGS>;
  readonly #model: BenchModel;
  readonly #faultNames: readonly FaultName[];
  readonly #random: () => number;
  readonly #bodies: Record<string, unknown>[] = [];
  readonly #answers: Answer[] = [];
  readonly #runId = randomBytes(4).toString('hex');
  #requestCount = 0;

  constructor(run: BenchRun<typeof SETTINGS>, model: BenchModel, names: readonly FaultName[]) {
    this.#run = run;
    this.#model = model;
    this.#faultNames = names;
    this.#random = randomSource(run.settings.seed);
  }

  async measure(): Promise<Measured> {
    const { settings, progress, children } = this.#run;
    await this.#makeBodies();
    const stack = await startStack({
      model: this.#model,
      threads: Math.max(1, Math.floor(settings.threads / settings.batchers)),
      batcherCount: settings.batchers,
      progress,
      children,
    });
    const probe = new LeftoverProbe(stack.redisUrl, this.#model.name);
    try {
      for (const [index, body] of this.#bodies.entries()) {
        const { texts, finishReasons, faults } = await this.#ask(stack, body, {});
        if (faults.length > 0) throw new Error(`request ${index}, undisturbed: ${faults.join('; ')}`);
        this.#answers.push({ texts, finishReasons });
      }
      progress(`${this.#bodies.length} answers taken, undisturbed`);
      await probe.settled();
      const keysBefore = await probe.lastingKeys();
      const connectionsBefore = await connectionCount(stack);
      const startedAt = performance.now();
      const { outcomes, alteredCount, faultCounts } = await this.#disturb(stack);
      await allBack(stack, settings.batchers);
      const left = await probe.settled();
      const newKeys = [...(await probe.lastingKeys())].filter(key => !keysBefore.has(key));
      for (const key of newKeys) progress(`key without expiry: ${key}`);
      const connections = { before: connectionsBefore, after: await settledConnectionCount(stack, connectionsBefore) };
      return { outcomes, alteredCount, faultCounts, left, newKeys, connections, wallMs: performance.now() - startedAt };
    } finally {
      await probe.close();
      await stack.close();
    }
  }

  async #makeBodies(): Promise<void> {
    const prompts = await PromptMaker.open(this.#model);
    for (const [index, request] of seededRequests(this.#run.settings.requests).entries()) {
      const content = prompts.content(index, Math.min(request.promptTokens, LONGEST_PROMPT_TOKENS));
      this.#bodies.push({
        model: 'default',
        messages: [{ role: 'user', content }],
        ...request.parameters,
        ...HARD_PARAMETERS[index % HARD_PARAMETERS.length]!,
      });
    }
  }

  #ask(
    stack: Stack,
    body: Record<string, unknown>,
    how: { isStreamed?: boolean; leavesAfter?: number | undefined },
  ): Promise<ChaosOutcome> {
    this.#requestCount += 1;
    return askUntilAnswered(stack.target, {
      key: `chaos-${this.#runId}-${this.#requestCount}`,
      body,
      isStreamed: how.isStreamed ?? true,
      leavesAfter: how.leavesAfter,
    });
  }

  async #disturb(stack: Stack): Promise<Pick<Measured, 'outcomes' | 'alteredCount' | 'faultCounts'>> {
    const { settings, progress } = this.#run;
    const outcomes: ChaosOutcome[] = [];
    let alteredCount = 0;
    let isOver = false;
    const client = async () => {
      while (!isOver) {
        const index = Math.floor(this.#random() * this.#bodies.length);
        const isStreamed = this.#random() >= WHOLE_SHARE;
        const leavesAfter = isStreamed && this.#random() < LEAVING_SHARE ? 1 + Math.floor(this.#random() * 12) : undefined;
        const outcome = await this.#ask(stack, this.#bodies[index]!, { isStreamed, leavesAfter });
        outcomes.push(outcome);
        const difference = this.#difference(index, outcome);
        if (difference !== undefined) alteredCount += 1;
        for (const fault of [...outcome.faults, ...(difference === undefined ? [] : [difference])]) progress(`request ${index}: ${fault}`);
      }
    };
    const load = Array.from({ length: settings.clients }, client);
    const faultCounts = new Map<FaultName, number>();
    const endAt = Date.now() + settings.minutes * 60_000;
    for (const name of faultOrder(this.#faultNames, this.#random)) {
      if (this.#random() >= HEELS_SHARE) await calm(() => outcomes.length);
      await sleep(CALM_MS.least + this.#random() * (CALM_MS.most - CALM_MS.least));
      const isDone = settings.minutes > 0 ? Date.now() >= endAt : this.#faultNames.every(wanted => faultCounts.has(wanted));
      if (isDone) break;
      progress(`${outcomes.length} requests so far; now: ${FAULTS[name].what}`);
      await FAULTS[name].happen({ stack, random: this.#random });
      faultCounts.set(name, (faultCounts.get(name) ?? 0) + 1);
    }
    isOver = true;
    await Promise.all(load);
    return { outcomes, alteredCount, faultCounts };
  }

  /** What the client has that it should not have; of one that left, what it had until then. */
  #difference(index: number, outcome: ChaosOutcome): string | undefined {
    const answer = this.#answers[index]!;
    for (const [choice, expected] of answer.texts.entries()) {
      const text = outcome.texts[choice] ?? '';
      if (outcome.isWhole && differingBytes(text, expected) > 0) {
        return `choice ${choice} has ${JSON.stringify(text)}, undisturbed ${JSON.stringify(expected)}`;
      }
      if (!expected.startsWith(text))
        return `choice ${choice} has ${JSON.stringify(text)}, which does not begin ${JSON.stringify(expected)}`;
    }
    const isEnded = !outcome.isWhole || answer.finishReasons.every((reason, choice) => outcome.finishReasons[choice] === reason);
    return isEnded ? undefined : `ended with ${outcome.finishReasons}, undisturbed ${answer.finishReasons}`;
  }
}

async function connectionCount(stack: Stack): Promise<number> {
  const redis = new Redis(stack.redisUrl, { maxRetriesPerRequest: null });
  try {
    const list = String(await redis.call('CLIENT', 'LIST'));
    return list.trim().split('\n').length;
  } finally {
    redis.disconnect();
  }
}

/** The count once it is no more than `wanted`, or when patience is over. */
async function settledConnectionCount(stack: Stack, wanted: number): Promise<number> {
  const giveUpAt = Date.now() + RECOVERY_PATIENCE_MS;
  for (;;) {
    const count = await connectionCount(stack);
    if (count <= wanted || Date.now() > giveUpAt) return count;
    await sleep(POLL_MS);
  }
}

/** Until a few more requests have ended. */
async function calm(endedCount: () => number): Promise<void> {
  const wanted = endedCount() + CALM_ANSWERS;
  const giveUpAt = Date.now() + CALM_PATIENCE_MS;
  while (endedCount() < wanted && Date.now() < giveUpAt) await sleep(POLL_MS);
}

/** Every process of the product runs again. */
async function allBack(stack: Stack, batcherCount: number): Promise<void> {
  const giveUpAt = Date.now() + RECOVERY_PATIENCE_MS;
  while (stack.batcherPids.length < batcherCount || stack.gatewayPid() === undefined) {
    if (Date.now() > giveUpAt) throw new Error('after the last fault not every process came back');
    await sleep(POLL_MS);
  }
}

function findings(model: BenchModel, measured: Measured): Findings {
  const { outcomes, alteredCount, faultCounts, left, newKeys, connections } = measured;
  const whole = outcomes.filter(outcome => outcome.isWhole);
  const leftCount = outcomes.filter(outcome => outcome.hasLeft).length;
  const lostCount = outcomes.length - whole.length - leftCount;
  const faults = outcomes.flatMap(outcome => outcome.faults);
  const sum = (of: (outcome: ChaosOutcome) => number) => outcomes.reduce((total, outcome) => total + of(outcome), 0);
  const pauses = whole.map(outcome => outcome.longestPauseMs);
  const leakedConnectionCount = Math.max(0, connections.after - connections.before);
  const seconds = (ms: number) => (ms / 1000).toFixed(1);
  return {
    title: `${outcomes.length} requests in ${(measured.wallMs / 60_000).toFixed(1)} minutes with ${[...faultCounts.values()].reduce((a, b) => a + b, 0)} faults, on ${model.name}`,
    versions: model.versions,
    tables: [
      {
        title: 'Faults',
        columns: ['', 'times'],
        rows: [...faultCounts].map(([name, count]) => [FAULTS[name].what, String(count)]),
      },
      {
        title: 'Requests',
        columns: ['', 'value'],
        rows: [
          ['answered whole', String(whole.length)],
          ['left by their client', String(leftCount)],
          ['lost', String(lostCount)],
          ['answers altered', String(alteredCount)],
          ['events twice or out of order, errors in an answer', String(faults.length)],
          ['connections made again', String(sum(outcome => outcome.resumeCount))],
          ['refusals, asked again', String(sum(outcome => outcome.refusalCount))],
          ['longest pause within a stream, s: median', seconds(percentile(pauses, 50))],
          ['99th percentile', seconds(percentile(pauses, 99))],
          ['most', seconds(Math.max(...pauses))],
        ],
      },
      {
        title: 'Left behind',
        columns: ['', 'value'],
        rows: [
          ['running rows', String(left.runningCount)],
          ['waiting sequences', String(left.waitingCount)],
          ['jobs in Redis', String(left.jobCount)],
          ['new keys without expiry', String(newKeys.length)],
          ['connections to Redis more than before', String(leakedConnectionCount)],
        ],
      },
    ],
    figures: {
      requestCount: outcomes.length,
      wholeCount: whole.length,
      leftCount,
      callCount: sum(outcome => outcome.callCount),
      lostCount,
      alteredCount,
      faultsInStreams: faults,
      faultCounts: Object.fromEntries(faultCounts),
      longestPauseMs: { median: percentile(pauses, 50), p99: percentile(pauses, 99), most: Math.max(...pauses) },
      left,
      newKeyCount: newKeys.length,
      connections,
    },
    bars: [
      { name: 'requests lost', value: lostCount, relation: '=', limit: 0 },
      { name: 'answers altered', value: alteredCount, relation: '=', limit: 0 },
      { name: 'events twice or out of order, errors in an answer', value: faults.length, relation: '=', limit: 0 },
      { name: 'running rows left', value: left.runningCount, relation: '=', limit: 0 },
      { name: 'waiting sequences left', value: left.waitingCount, relation: '=', limit: 0 },
      { name: 'jobs left in Redis', value: left.jobCount, relation: '=', limit: 0 },
      { name: 'new keys without expiry', value: newKeys.length, relation: '=', limit: 0 },
      { name: 'connections to Redis left', value: leakedConnectionCount, relation: '=', limit: 0 },
    ],
    notes: [
      'a request counts as lost when its client has no whole answer after 120 s of asking, resuming and waiting as the replies say',
      'answers were taken on the same batchers before the first fault, one at a time',
    ],
  };
}
