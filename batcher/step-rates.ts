/**
 * StepRates: this host's measured speeds, over recent work: aggregate tokens per second of prefill and of decode, and how many tokens of a prompt
 * are computed within a given time.
 */
import { ChunkCost, type ChunkSize } from './chunk-cost.ts';

/** Work that lies this far back counts 1/e. */
const WINDOW_MS = 5_000;

/** Sums over recent runs, each decaying with the time spent since. */
class RecentRuns {
  #tokens = 0;
  #ms = 0;

  add(tokens: number, ms: number): void {
    const kept = Math.exp(-ms / WINDOW_MS);
    this.#tokens = this.#tokens * kept + tokens;
    this.#ms = this.#ms * kept + ms;
  }

  /** 0 until the first measurement. */
  get perSecond(): number {
    return this.#ms > 0 ? (this.#tokens / this.#ms) * 1000 : 0;
  }
}

/** Steps that verify drafts take longer than those between them; the longest of recent ones counts, so much less with each step. */
const LONGEST_KEPT = 0.9;
/** Of the bound, what a step is made for: its time varies, and the bound is to hold for nearly all steps, not for half of them. */
const AIM = 0.8;
/** Of that, what a chunk gets where streams take much of it: prompts must keep up with a large batch, or its rows stand empty. */
const LEAST_CHUNK_SHARE = 0.8;
/** Of the newest chunk in how much slower the machine is just now than the cost that was learned over seconds of work says. */
const SLOWDOWN_WEIGHT = 0.5;
/** One chunk that was held up says no more than this. */
const MOST_SLOWDOWN = 2.5;

export class StepRates {
  readonly #chunkCost = new ChunkCost();
  readonly #decode = new RecentRuns();
  /** Of recent prompt tokens, decaying. */
  #promptTokens = 0;
  #positionSum = 0;
  #streamsStepMs = 0;
  /** At least 1. */
  #slowdown = 1;

  /** A step gave so much of its time to streams that run. */
  stepped(streamsMs: number): void {
    this.#streamsStepMs = Math.max(streamsMs, this.#streamsStepMs * LONGEST_KEPT);
  }

  /** Milliseconds of a prefill chunk in a step that is to stay within `itlSloMs` with the streams that run beside it. */
  chunkMsWithin(itlSloMs: number): number {
    const stepMs = itlSloMs * AIM;
    return Math.max(stepMs - this.#streamsStepMs, stepMs * LEAST_CHUNK_SHARE);
  }

  prefilled(chunk: ChunkSize, ms: number): void {
    const ratio = Math.min(MOST_SLOWDOWN, ms / (this.#chunkCost.msOf(chunk) ?? ms));
    this.#slowdown = Math.max(1, this.#slowdown + SLOWDOWN_WEIGHT * (ratio - this.#slowdown));
    this.#chunkCost.observe(chunk, ms);
    const kept = Math.exp(-ms / WINDOW_MS);
    this.#promptTokens = this.#promptTokens * kept + chunk.tokens;
    this.#positionSum = this.#positionSum * kept + chunk.tokens * (chunk.start + chunk.tokens / 2);
  }

  decoded(tokens: number, ms: number): void {
    this.#decode.add(tokens, ms);
  }

  /** Of large chunks, where what every run costs does not count, at the positions of recent ones; 0 until the first measurement. */
  get prefillTokensPerSecond(): number {
    const tokenMs = this.#chunkCost.msPerTokenAt(this.#positionSum / this.#promptTokens);
    return tokenMs === undefined ? 0 : 1000 / tokenMs;
  }

  get decodeTokensPerSecond(): number {
    return this.#decode.perSecond;
  }

  /** Tokens of a prefill chunk from `start` that takes about this long now, not rounded; undefined until the first measurement. */
  chunkTokensWithin(ms: number, start: number): number | undefined {
    return this.#chunkCost.tokensWithin(ms / this.#slowdown, start);
  }
}
