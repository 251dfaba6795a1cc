/** ChildLog: the log file of one child; it and its one predecessor (`.1`) together stay under twice the limit. */
import { closeSync, fstatSync, mkdirSync, openSync, renameSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

const LIMIT_BYTES = 4 * 1024 * 1024;

export class ChildLog {
  readonly path: string;
  #limitBytes: number;
  #file: number;
  #sizeBytes: number;

  constructor(path: string, limitBytes = LIMIT_BYTES) {
    this.path = path;
    this.#limitBytes = limitBytes;
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // Logs tell of requests, so they are for their owner only.
    this.#file = openSync(path, 'a', 0o600);
    this.#sizeBytes = fstatSync(this.#file).size;
  }

  /** Never throws: a full disk must not end the supervisor. */
  write(line: string): void {
    try {
      const bytes = Buffer.from(`${line}\n`);
      if (this.#sizeBytes > 0 && this.#sizeBytes + bytes.length > this.#limitBytes) this.#rotate();
      writeSync(this.#file, bytes);
      this.#sizeBytes += bytes.length;
    } catch {
      // The line is lost; it was still shown when it mattered.
    }
  }

  #rotate(): void {
    closeSync(this.#file);
    renameSync(this.path, `${this.path}.1`);
    this.#file = openSync(this.path, 'a', 0o600);
    this.#sizeBytes = 0;
  }
}
