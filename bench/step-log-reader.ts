/** StepLogReader: what a batcher writes into its step log, as it comes. */
import { readFile } from 'node:fs/promises';
import type { StepRecord } from '../batcher/step-log.ts';

export class StepLogReader {
  readonly #path: string;
  #readBytes = 0;

  constructor(path: string) {
    this.#path = path;
  }

  /** Of the whole lines since the last call. Throws where lines were dropped: then it says nothing about sums. */
  async take(): Promise<StepRecord[]> {
    const bytes = await readFile(this.#path);
    const end = bytes.lastIndexOf(0x0a) + 1;
    const lines = bytes.subarray(this.#readBytes, end).toString('utf8').split('\n').slice(0, -1);
    this.#readBytes = end;
    const records = lines.map(line => JSON.parse(line) as StepRecord);
    if (records.some(({ dropped }) => dropped > 0)) throw new Error('the batcher could not write all of its step log');
    return records;
  }
}
