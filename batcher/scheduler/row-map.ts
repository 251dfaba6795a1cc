/**
 * RowMap: which sequence has which row of the KV cache, and the moves that make the decode batch dense.
 * Guarantee: a row has one sequence at most, and after `pack` every decoding sequence has one of the first rows.
 *
 * A decode batch computes the rows 0 to length - 1. What sits among them without decoding (a prefill that others overtook, a
 * verification of drafts) is given a filler: a token at the first position that it has not computed, overwritten before it is read.
 * That wastes a row of the batch, but moving is not free either:
 *
 *     rows    D D _ D P D        D decodes, P is in its prefill, _ is free
 *     packed  D D D D P D        when a filler for P costs less than moving it: length 6, P is filled
 *     packed  D D D D D P        else: P goes up first
 */
import type { Sequence } from './sequence.ts';

export interface RowCopy {
  from: number;
  to: number;
  tokens: number;
}

export class RowMap {
  readonly rowCount: number;
  readonly #sequences: (Sequence | undefined)[];

  constructor(rowCount: number) {
    this.rowCount = rowCount;
    this.#sequences = new Array<Sequence | undefined>(rowCount).fill(undefined);
  }

  at(row: number): Sequence | undefined {
    return this.#sequences[row];
  }

  lowestFree(from = 0): number | undefined {
    for (let row = from; row < this.rowCount; row += 1) {
      if (this.#sequences[row] === undefined) return row;
    }
    return undefined;
  }

  place(sequence: Sequence, row: number): void {
    if (this.#sequences[row] !== undefined) throw new Error(`Row ${row} has a sequence.`);
    if (sequence.row !== undefined) throw new Error(`Sequence ${sequence.id} has a row.`);
    this.#sequences[row] = sequence;
    sequence.row = row;
  }

  /** Takes the row from a sequence; returns it. */
  vacate(sequence: Sequence): number {
    const { row } = sequence;
    if (row === undefined || this.#sequences[row] !== sequence) throw new Error(`Sequence ${sequence.id} has no row.`);
    this.#sequences[row] = undefined;
    sequence.row = undefined;
    return row;
  }

  /**
   * Moves rows until all of `decoding` (which have rows) are among the first ones; calls onMove for each move, in the order in which
   * they must be carried out, and returns the length of the decode batch. A sequence that does not decode moves up when a filler is
   * expected to cost more than both moves, by `fillerCost`, in tokens copied.
   */
  pack(
    decodes: (sequence: Sequence) => boolean,
    decodingCount: number,
    costs: { fillerCost(sequence: Sequence): number; onMove(copy: RowCopy): void },
  ): number {
    let length = this.#span(decodes, decodingCount);
    for (let row = 0; row < length; row += 1) {
      const blocker = this.#sequences[row];
      if (blocker === undefined || decodes(blocker)) continue;
      const above = this.lowestFree(length);
      if (above === undefined) break;
      const comer = this.#lastDecoding(decodes);
      if (comer === undefined || comer.row! < row) break;
      if (costs.fillerCost(blocker) <= blocker.computedCount + comer.computedCount) continue;
      this.#move(blocker, above, costs.onMove);
      length = this.#span(decodes, decodingCount);
    }
    for (let row = this.rowCount - 1; row >= length; row -= 1) {
      const sequence = this.#sequences[row];
      if (sequence !== undefined && decodes(sequence)) this.#move(sequence, this.lowestFree()!, costs.onMove);
    }
    return length;
  }

  /** Throws when a sequence does not know its row. */
  check(): void {
    for (let row = 0; row < this.rowCount; row += 1) {
      const sequence = this.#sequences[row];
      if (sequence !== undefined && sequence.row !== row)
        throw new Error(`Row map: row ${row} is not known to its sequence ${sequence.id}.`);
    }
  }

  /** Rows from 0 on that hold all who decode once they have filled the free rows among them. */
  #span(decodes: (sequence: Sequence) => boolean, decodingCount: number): number {
    let length = 0;
    let seats = 0;
    while (seats < decodingCount) {
      const sequence = this.#sequences[length];
      if (sequence === undefined || decodes(sequence)) seats += 1;
      length += 1;
    }
    return length;
  }

  /** The decoding sequence in the highest row: the one that takes a freed seat. */
  #lastDecoding(decodes: (sequence: Sequence) => boolean): Sequence | undefined {
    for (let row = this.rowCount - 1; row >= 0; row -= 1) {
      const sequence = this.#sequences[row];
      if (sequence !== undefined && decodes(sequence)) return sequence;
    }
    return undefined;
  }

  #move(sequence: Sequence, to: number, onMove: (copy: RowCopy) => void): void {
    const from = this.vacate(sequence);
    this.place(sequence, to);
    onMove({ from, to, tokens: sequence.computedCount });
  }
}
