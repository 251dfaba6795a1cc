/** Table: rows under headings, aligned for the eye: numbers to the right, texts to the left. */

export type Cell = string | number | null;

const NOTHING = '-';
const GAP = '  ';

/** One line a row; `empty` stands for no rows at all. */
export function table(headings: readonly string[], rows: readonly (readonly Cell[])[], empty: string): string {
  if (rows.length === 0) return empty;
  const isNumber = headings.map((_, column) => rows.some(row => typeof row[column] === 'number'));
  const lines = [headings, ...rows.map(row => row.map(shown))];
  const widths = headings.map((_, column) => Math.max(...lines.map(line => line[column]!.length)));
  return lines
    .map(line =>
      line
        .map((cell, column) => (isNumber[column] ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!)))
        .join(GAP)
        .trimEnd(),
    )
    .join('\n');
}

function shown(cell: Cell): string {
  if (cell === null) return NOTHING;
  return typeof cell === 'number' ? cell.toLocaleString('en-US') : printable(cell);
}

/** Names come from others: nothing in them may steer a terminal. */
function printable(text: string): string {
  return Array.from(text, char => (/\p{Cc}/u.test(char) ? '?' : char)).join('');
}
