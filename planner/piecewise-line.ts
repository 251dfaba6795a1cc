/** PiecewiseLine: a value between measured points on the straight line between its neighbours, past the last one on the line through the last two. */

export class PiecewiseLine {
  readonly #xs: Float64Array;
  readonly #ys: Float64Array;

  /** Points ascending by x, one at least; no points are 0 everywhere. */
  constructor(points: readonly (readonly [x: number, y: number])[]) {
    this.#xs = Float64Array.from(points, point => point[0]);
    this.#ys = Float64Array.from(points, point => point[1]);
    for (let i = 1; i < points.length; i++) if (!(this.#xs[i]! > this.#xs[i - 1]!)) throw new RangeError('The points are not in order.');
  }

  /** Before the first point it is the first one's. */
  at(x: number): number {
    const [xs, ys] = [this.#xs, this.#ys];
    const last = xs.length - 1;
    if (last < 0) return 0;
    if (last === 0 || x <= xs[0]!) return ys[0]!;
    let above = 1;
    while (above < last && xs[above]! < x) above++;
    const share = (x - xs[above - 1]!) / (xs[above]! - xs[above - 1]!);
    return ys[above - 1]! + (ys[above]! - ys[above - 1]!) * share;
  }
}
