/** WarningGate: a child in trouble may warn a thousand times a second; a person sees the first ones of each minute, and where the rest is. */

const LINES_A_MINUTE = 10;
const WINDOW_MS = 60_000;

export class WarningGate {
  #logPath: string;
  #print: (line: string) => void;
  #windowFrom = Number.NEGATIVE_INFINITY;
  #count = 0;

  constructor(logPath: string, print: (line: string) => void) {
    this.#logPath = logPath;
    this.#print = print;
  }

  say(line: string, now = Date.now()): void {
    if (now - this.#windowFrom >= WINDOW_MS) {
      this.#windowFrom = now;
      this.#count = 0;
    }
    this.#count += 1;
    if (this.#count <= LINES_A_MINUTE) this.#print(line);
    else if (this.#count === LINES_A_MINUTE + 1) this.#print(`There are more; they are in ${this.#logPath}.`);
  }
}
