/** Cases: docs/cases.md and the titles of tests say the same: every case is shown where the list says, and every number in a title is on the list. */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';

const PROJECT = join(import.meta.dirname, '..');
const LIST = join(PROJECT, 'docs', 'cases.md');
/** Those that were given. */
const NUMBERS = [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 17, 19, 20].concat(
  [22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 35, 36, 38, 39, 40, 42, 43, 44],
  [46, 48, 49, 50, 51, 53, 54, 56, 57, 59, 61, 62],
);

const rows = [...readFileSync(LIST, 'utf8').matchAll(/^\| (\d+) +\|.*\| (\[.*?) *\|$/gm)].map(([, number, links]) => ({
  number: Number(number),
  files: [...links!.matchAll(/\]\(([^)]+)\)/g)].map(([, link]) => join(dirname(LIST), link!)),
}));

/** Numbers in texts such as `case 7: …` and `… (cases 13, 14)`. */
function numbersIn(source: string): Set<number> {
  const titles = source.matchAll(/['"`][^'"`\n]*?\bcases? (\d+(?:(?:, | and )\d+)*)/g);
  return new Set([...titles].flatMap(([, numbers]) => numbers!.match(/\d+/g)!.map(Number)));
}

describe('the list', () => {
  it('has every case once', () => {
    expect(rows.map(row => row.number).toSorted((a, b) => a - b)).toEqual(NUMBERS);
  });

  it.each(rows)('names files that show case $number', ({ number, files }) => {
    expect(files.length).toBeGreaterThan(0);
    for (const file of files) expect([...numbersIn(readFileSync(file, 'utf8'))], file).toContain(number);
  });
});

it('no title has a number that is not on the list', () => {
  const files = globSync('test/**/*.test.ts', { cwd: PROJECT }).filter(path => path !== join('test', 'cases.test.ts'));
  const found = new Set(files.flatMap(path => [...numbersIn(readFileSync(join(PROJECT, path), 'utf8'))]));
  expect([...found].toSorted((a, b) => a - b)).toEqual(NUMBERS);
});
