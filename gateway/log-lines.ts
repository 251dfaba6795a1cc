/**
 * LogLines: lines for the log, each one JSON object. Where the runtime writes each call to the console by itself, lines that come within a moment
 * go out in one call, which costs as much as one line; none waits for longer while there is anybody to send it.
 */

/** Runs what is to be done later, in a context that lasts until then. */
export type Later = (task: () => Promise<void>) => void;

/** No call gets longer. */
const MAX_LINES = 128;
/** The request that was to send them may have been ended by the runtime. */
const OVERDUE = 4;

export class LogLines {
  readonly #gatherMs: number;
  readonly #print: (text: string) => void;
  #lines: string[] = [];
  #dueAt: number | undefined;

  constructor({ gatherMs, print }: { gatherMs: number; print(text: string): void }) {
    this.#gatherMs = gatherMs;
    this.#print = print;
  }

  write(line: Readonly<Record<string, unknown>>, later: Later): void {
    this.#lines.push(JSON.stringify(line));
    const now = Date.now();
    const isOverdue = this.#dueAt !== undefined && now >= this.#dueAt + OVERDUE * this.#gatherMs;
    if (this.#gatherMs === 0 || this.#lines.length >= MAX_LINES || isOverdue) this.#flush();
    else if (this.#dueAt === undefined) later(() => this.#flushAt(now + this.#gatherMs));
    if (isOverdue) this.#dueAt = undefined;
  }

  async #flushAt(dueAt: number): Promise<void> {
    this.#dueAt = dueAt;
    await new Promise(resolve => setTimeout(resolve, this.#gatherMs));
    this.#dueAt = undefined;
    this.#flush();
  }

  #flush(): void {
    if (this.#lines.length === 0) return;
    const text = this.#lines.join('\n');
    this.#lines = [];
    this.#print(text);
  }
}
