/**
 * RunningSet: the sequences that have a row, in the order of their right to keep it.
 * Guarantee: the last one is of the lowest class and, within it, the latest admitted: the next to be preempted.
 */
import { SERVICE_CLASSES } from '../../shared/job.ts';
import { RowMap } from './row-map.ts';
import type { Sequence } from './sequence.ts';

export class RunningSet {
  readonly rows: RowMap;
  readonly #sequences: Sequence[] = [];

  constructor(rowCount: number) {
    this.rows = new RowMap(rowCount);
  }

  get count(): number {
    return this.#sequences.length;
  }

  get last(): Sequence | undefined {
    return this.#sequences.at(-1);
  }

  /** Rows in use or promised to choices that still share a prefill. */
  get claimedRowCount(): number {
    let rows = 0;
    for (const sequence of this.#sequences) rows += sequence.choiceIds.length;
    return rows;
  }

  /** From the most to the least entitled; removing the last ones on the way is allowed. */
  *[Symbol.iterator](): IterableIterator<Sequence> {
    for (let i = 0; i < this.#sequences.length; i += 1) yield this.#sequences[i]!;
  }

  add(sequence: Sequence, row: number): void {
    this.rows.place(sequence, row);
    sequence.state = 'running';
    let place = this.#sequences.length;
    while (place > 0 && isBefore(sequence, this.#sequences[place - 1]!)) place -= 1;
    this.#sequences.splice(place, 0, sequence);
  }

  /** It no longer runs, but its row still holds what is to be saved. False when it was not running. */
  retire(sequence: Sequence): boolean {
    const place = this.#sequences.indexOf(sequence);
    if (place >= 0) this.#sequences.splice(place, 1);
    return place >= 0;
  }

  check(): void {
    this.rows.check();
    for (let i = 0; i < this.#sequences.length; i += 1) {
      const sequence = this.#sequences[i]!;
      if (sequence.row === undefined || sequence.state !== 'running') throw new Error(`Running set: ${sequence.id} runs without a row.`);
      if (sequence.uncomputedCount < 1) throw new Error(`Running set: ${sequence.id} has nothing left to compute.`);
      if (i > 0 && isBefore(sequence, this.#sequences[i - 1]!)) throw new Error('Running set: sequences are out of order.');
    }
  }
}

/** 0 for the highest class. */
export function rankOf(sequence: Sequence): number {
  return SERVICE_CLASSES.indexOf(sequence.request.serviceClass);
}

/** Whether `a` is preempted later than `b`. */
function isBefore(a: Sequence, b: Sequence): boolean {
  const ranks = rankOf(a) - rankOf(b);
  if (ranks !== 0) return ranks < 0;
  // Forks share their admission; of equals the one that was there first stays first.
  return a.admissionOrder! < b.admissionOrder!;
}
