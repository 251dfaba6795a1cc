/** SimulatedEngine: how long each run of an engine takes on a host of which the service curves are known. It computes nothing. */
import { PiecewiseLine } from './piecewise-line.ts';
import type { ServiceCurves } from './service-curves.ts';

export type EngineTimes = Pick<ServiceCurves, 'decode' | 'prefill' | 'prefillPast' | 'copyMsPerToken' | 'path'>;

export class SimulatedEngine {
  /** By rows. */
  readonly #decodeMs: number[] = [];
  readonly #contextMs: number[] = [];
  readonly #prefill: PiecewiseLine;
  readonly #past: ServiceCurves['prefillPast'];
  readonly #prefillShare: ServiceCurves['path']['prefillShare'];
  /** Of a request, once. */
  readonly requestMs: number;
  readonly #copyMsPerToken: number;

  /** `maxRows` is the largest batch that will be asked for. */
  constructor(curves: EngineTimes, maxRows: number) {
    const base = new PiecewiseLine(curves.decode.map(({ rows, ms }) => [rows, ms]));
    const context = new PiecewiseLine(curves.decode.map(({ rows, msPerContextToken }) => [rows, msPerContextToken]));
    const path = new PiecewiseLine(curves.path.steps.map(({ rows, extraMs }) => [rows, extraMs]));
    for (let rows = 0; rows <= maxRows; rows++) {
      // Measured apart, on a machine that is never quite still: a step with its path never takes less than nothing.
      this.#decodeMs[rows] = rows === 0 ? 0 : Math.max(0, base.at(rows) + path.at(rows));
      this.#contextMs[rows] = Math.max(0, context.at(rows));
    }
    this.#prefill = new PiecewiseLine(curves.prefill.map(({ tokens, ms }) => [tokens, ms]));
    this.#past = curves.prefillPast;
    this.#prefillShare = curves.path.prefillShare;
    this.requestMs = curves.path.requestMs;
    this.#copyMsPerToken = curves.copyMsPerToken;
  }

  /** One token for each of so many rows, with so many tokens of context in all of them together. */
  decodeMs(rows: number, contextTokens: number): number {
    return this.#decodeMs[rows]! + this.#contextMs[rows]! * contextTokens;
  }

  /** In a step by itself, or in one with streams. */
  prefillMs(start: number, tokens: number, isBeside = false): number {
    const { msPerPastToken, msPerPair } = this.#past;
    const share = isBeside ? this.#prefillShare.beside : this.#prefillShare.alone;
    return share * (Math.max(0, this.#prefill.at(tokens)) + start * (msPerPastToken + tokens * msPerPair));
  }

  copyMs(tokens: number): number {
    return tokens * this.#copyMsPerToken;
  }
}
