/** Plot: lines over a common axis as an SVG picture that stands on its own, readable on light and dark pages. */

export interface Series {
  name: string;
  /** x and y, ascending by x. */
  points: readonly (readonly [number, number])[];
}

export interface Plot {
  title: string;
  /** Names of the axes, with their units. */
  x: string;
  y: string;
  series: readonly Series[];
}

const SIZE = { width: 720, height: 320 };
const MARGIN = { left: 64, right: 132, top: 52, bottom: 44 };
const COLOURS = ['#2f7ed8', '#d9822b', '#3a9d5d', '#9b51b5', '#b5484b', '#5f6b7a'];
const TICKS = 5;
const LABEL_HEIGHT = 13;

export function plotSvg({ title, x, y, series }: Plot): string {
  const points = series.flatMap(({ points }) => points);
  if (points.length === 0) throw new Error('plot of no points');
  const ticks = { x: ticksTo(Math.max(...points.map(point => point[0]))), y: ticksTo(Math.max(...points.map(point => point[1]))) };
  const most = { x: Math.max(...points.map(point => point[0])), y: ticks.y.at(-1)! };
  const inner = { width: SIZE.width - MARGIN.left - MARGIN.right, height: SIZE.height - MARGIN.top - MARGIN.bottom };
  const left = (value: number) => MARGIN.left + (inner.width * value) / (most.x || 1);
  const top = (value: number) => MARGIN.top + inner.height * (1 - value / (most.y || 1));
  const labels = spaced(series.map(({ points }) => top(points.at(-1)![1])));
  const lines = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${SIZE.width} ${SIZE.height}" font-family="sans-serif" font-size="12">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    text(MARGIN.left, 20, title, 'start', 'font-size="14"'),
    ...ticks.y.flatMap(value => [
      `<line x1="${MARGIN.left}" x2="${MARGIN.left + inner.width}" y1="${top(value).toFixed(1)}" y2="${top(value).toFixed(1)}" stroke="#dddddd"/>`,
      text(MARGIN.left - 8, top(value) + 4, number(value), 'end'),
    ]),
    ...ticks.x.filter(value => value <= most.x).map(value => text(left(value), MARGIN.top + inner.height + 18, number(value), 'middle')),
    text(MARGIN.left + inner.width / 2, SIZE.height - 8, x, 'middle'),
    text(4, MARGIN.top - 14, y, 'start'),
    ...series.flatMap(({ name, points }, index) => {
      const colour = COLOURS[index % COLOURS.length]!;
      const path = points.map(([px, py]) => `${left(px).toFixed(1)},${top(py).toFixed(1)}`).join(' ');
      return [
        `<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="1.5"/>`,
        text(MARGIN.left + inner.width + 8, labels[index]! + 4, name, 'start', `fill="${colour}"`),
      ];
    }),
    '</svg>',
  ];
  return `${lines.join('\n')}\n`;
}

/** Heights of labels, moved down where they would lie on one another. */
function spaced(heights: readonly number[]): number[] {
  const moved = [...heights];
  let least = Number.NEGATIVE_INFINITY;
  for (const index of heights.map((_, at) => at).sort((a, b) => heights[a]! - heights[b]!)) {
    moved[index] = Math.max(heights[index]!, least);
    least = moved[index] + LABEL_HEIGHT;
  }
  return moved;
}

function text(x: number, y: number, content: string, anchor: 'start' | 'middle' | 'end', more = ''): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}" ${more}>${escaped(content)}</text>`;
}

function escaped(content: string): string {
  return content.replace(/[&<>]/g, character => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[character]!);
}

/** From 0 on, about TICKS of them, the last not below `most`. */
function ticksTo(most: number): number[] {
  const step = niceAbove(most / TICKS);
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
}

/** The least of 1, 2, 2.5 and 5 times a power of ten that is not below it. */
function niceAbove(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map(factor => factor * power).find(nice => nice >= value)!;
}

function number(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}
