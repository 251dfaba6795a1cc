/** Screen: all that `npm start` says. On a terminal with progress bars and marks; into a file or pipe as plain lines. */
import { Presets, SingleBar } from 'cli-progress';

const LABEL_WIDTH = 10;
/** Between two lines about the same long step where there is no terminal to draw on. */
const PLAIN_PROGRESS_MS = 5_000;

export class Screen {
  #isTerminal: boolean;
  #bar: SingleBar | undefined;
  #barLabel = '';
  #saidAt = 0;

  constructor(isTerminal = process.stdout.isTTY === true) {
    this.#isTerminal = isTerminal;
    // The terminal may be closed before we have ended our children.
    process.stdout.on('error', () => {});
    process.stderr.on('error', () => {});
  }

  /** A step is done. */
  done(label: string, detail: string): void {
    this.#print(`${this.#paint('32', this.#isTerminal ? '✔' : '-')} ${label.padEnd(LABEL_WIDTH)} ${detail}`);
  }

  note(line: string): void {
    this.#print(`  ${line}`);
  }

  warn(line: string): void {
    this.#print(`${this.#paint('33', this.#isTerminal ? '▲' : 'warning:')} ${line}`);
  }

  /** The last word before an exit that was not asked for. */
  error(message: string): void {
    this.#endBar();
    process.stderr.write(`${this.#paint('31', this.#isTerminal ? '✘' : 'error:')} ${message}\n`);
  }

  plain(text: string): void {
    this.#print(text);
  }

  bold(text: string): string {
    return this.#paint('1', text);
  }

  dim(text: string): string {
    return this.#paint('2', text);
  }

  /** How far a long step is; total 0 means unknown. Ends with done() or any other line. */
  progress(label: string, done: number, total: number): void {
    if (total <= 0) return;
    if (this.#isTerminal) this.#drawBar(label, done, total);
    else this.#saySometimes(label, done, total);
  }

  #drawBar(label: string, done: number, total: number): void {
    if (this.#barLabel !== label) this.#endBar();
    if (this.#bar === undefined) {
      this.#barLabel = label;
      this.#bar = new SingleBar(
        { format: '  {label} {bar} {percentage} %', barsize: 30, hideCursor: true, clearOnComplete: true, gracefulExit: false },
        Presets.shades_classic,
      );
      this.#bar.start(total, done, { label });
    }
    this.#bar.setTotal(total);
    this.#bar.update(done);
    if (done >= total) this.#endBar();
  }

  #saySometimes(label: string, done: number, total: number): void {
    const now = Date.now();
    if (label === this.#barLabel && now - this.#saidAt < PLAIN_PROGRESS_MS) return;
    this.#barLabel = label;
    this.#saidAt = now;
    process.stdout.write(`  ${label} ${Math.floor((done / total) * 100)} %\n`);
  }

  #endBar(): void {
    this.#bar?.stop();
    this.#bar = undefined;
    this.#barLabel = '';
  }

  #print(line: string): void {
    this.#endBar();
    process.stdout.write(`${line}\n`);
  }

  #paint(code: string, text: string): string {
    return this.#isTerminal && process.env.NO_COLOR === undefined ? `\x1b[${code}m${text}\x1b[0m` : text;
  }
}
