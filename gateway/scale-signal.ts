/**
 * ScaleSignal: how many batchers a model needs: by the rate at which its requests come beside the rate that one batcher sustains (the planner's knee), and by
 * the queue that has grown. Where no knee is known, by the rows that its requests take.
 *
 *   rate / (knee · target)  +  queue / (knee · time in which the queue is to be gone)
 */
import { type BatcherCard, isFresh } from '../shared/batcher-card.ts';

export interface ScaleWish {
  /** Share of a batcher's knee that it is to be loaded with, so that the next one is there before the knee is reached. */
  targetShare: number;
  /** A queue is to be gone in so long. */
  queueMs: number;
  /** Requests a second that one batcher sustains; undefined where nobody has planned. */
  knee: number | undefined;
}

export interface ModelStanding {
  model: string;
  /** Of all models. */
  cards: readonly BatcherCard[];
  /** In all queues of the model, taken by no batcher. */
  queuedCount: number;
  /** Not in a queue, since no batcher serves the model. */
  heldCount: number;
  now: number;
}

export interface ScaleSignal {
  desiredCount: number;
  servingCount: number;
  /** Taken by the batchers a second, over about the last minute. */
  requestsPerSecond: number;
  /** Requests that wait: queued, held, and those that a batcher has no row for. */
  waitingCount: number;
  /** Of one batcher; undefined where it is not known. */
  knee: number | undefined;
  /** The rate beside what all serving batchers sustain: 1 is at the knee. Undefined without a knee or a batcher. */
  kneeRatio: number | undefined;
  /** Until those who wait have been taken, at the knee's rate. Undefined as that. */
  queueSeconds: number | undefined;
}

/** One request in three minutes leaves less behind: it keeps no batcher. */
const IDLE_RATE = 0.001;
/** So that a sum of rates which comes to a whole number asks for no more than that. */
const TOLERANCE = 1e-9;

export function scaleSignal({ model, cards, queuedCount, heldCount, now }: ModelStanding, wish: ScaleWish): ScaleSignal {
  const serving = cards.filter(card => card.model === model && card.state === 'serving' && isFresh(card, now));
  const sum = (of: (card: BatcherCard) => number) => serving.reduce((total, card) => total + of(card), 0);
  const [servingCount, runningCount] = [serving.length, sum(card => card.runningCount)];
  const rate = sum(card => card.requestsPerSecond ?? 0);
  const requestsPerSecond = rate < IDLE_RATE ? 0 : rate;
  const waitingCount = queuedCount + sum(card => card.waitingCount) + (servingCount === 0 ? heldCount : 0);
  const { knee, targetShare, queueMs } = wish;
  const rowsEach = servingCount === 0 ? undefined : sum(card => card.maxRunningCount) / servingCount;
  const needed =
    knee === undefined
      ? neededByRows(runningCount + waitingCount, rowsEach) / targetShare
      : requestsPerSecond / (knee * targetShare) + waitingCount / (knee * (queueMs / 1000));
  return {
    desiredCount: Math.max(Math.ceil(needed - TOLERANCE), runningCount + waitingCount > 0 ? 1 : 0),
    ...{ servingCount, requestsPerSecond, waitingCount, knee },
    kneeRatio: knee === undefined || servingCount === 0 ? undefined : requestsPerSecond / (knee * servingCount),
    queueSeconds: knee === undefined || servingCount === 0 ? undefined : waitingCount / (knee * servingCount),
  };
}

/** Before the first batcher nobody knows how many rows one has. */
function neededByRows(rowCount: number, rowsEach: number | undefined): number {
  return rowsEach === undefined ? Math.min(1, rowCount) : rowCount / rowsEach;
}

/** `0.98`, which holds for every model, or `one-model=0.98,another=2.5`; undefined where it says nothing of this one. */
export function kneeOf(text: string | undefined, model: string): number | undefined {
  if (text === undefined) return undefined;
  for (const part of text.split(',')) {
    const equals = part.lastIndexOf('=');
    if (equals === -1 || part.slice(0, equals) === model) return Number(part.slice(equals + 1));
  }
  return undefined;
}

const RATE = '(?:0*[1-9]\\d{0,5}(?:\\.\\d{1,6})?|0+\\.\\d{0,5}[1-9]\\d{0,5})';
const PAIR = `[\\w./:-]{1,128}=${RATE}`;
/** Of SLUICE_KNEE. No rate is 0, so that nothing is divided by it. */
export const KNEE_PATTERN = new RegExp(`^(?:${RATE}|${PAIR}(?:,${PAIR}){0,99})$`);
