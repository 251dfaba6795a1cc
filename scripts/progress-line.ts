/** ProgressLine: how far a long job is: a bar on a terminal, a line for each quarter elsewhere, so that logs stay short. */
import type { WriteStream } from 'node:tty';
import { Presets, SingleBar } from 'cli-progress';

const STEPS = 4;

export class ProgressLine implements Disposable {
  readonly #stream: WriteStream | NodeJS.WritableStream;
  readonly #isTerminal: boolean;
  #bar: SingleBar | undefined;
  #label = '';
  #step = -1;

  constructor(stream: WriteStream | NodeJS.WritableStream) {
    this.#stream = stream;
    this.#isTerminal = 'isTTY' in stream && stream.isTTY === true;
  }

  show(done: number, total: number, label: string): void {
    const share = total > 0 ? Math.min(done / total, 1) : 1;
    // Labels of single weights belong to one job; only a job's own percentage shows where lines are kept.
    if (this.#isTerminal) this.#showBar(share, label);
    else this.#showStep(share, label);
  }

  /** A line of its own, above the bar. */
  say(text: string): void {
    this.clear();
    this.#stream.write(`${text}\n`);
  }

  clear(): void {
    this.#bar?.stop();
    this.#bar = undefined;
  }

  [Symbol.dispose](): void {
    this.clear();
  }

  #showBar(share: number, label: string): void {
    if (this.#bar === undefined) {
      const options = {
        stream: this.#stream as NodeJS.WritableStream,
        format: '{bar} {percentage} % {label}',
        hideCursor: true,
        clearOnComplete: true,
      };
      this.#bar = new SingleBar(options, Presets.shades_classic);
      this.#bar.start(1000, 0, { label });
    }
    this.#bar.update(Math.round(share * 1000), { label });
  }

  #showStep(share: number, label: string): void {
    const step = Math.floor(share * STEPS);
    if (label === this.#label && step === this.#step) return;
    this.#label = label;
    this.#step = step;
    this.#stream.write(`${label}: ${Math.round(share * 100)} %\n`);
  }
}
