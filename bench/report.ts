/**
 * Report: what one bench found, as tables for people, figures for machines, and the bars that its issue sets.
 * The two renderings come from the same report, so they cannot disagree.
 */
import type { Host } from './host.ts';

/** A promise in numbers. It holds when value and limit are in the stated relation. */
export interface Bar {
  /** Names the figure in words: it is the last line of a failed check. */
  name: string;
  value: number;
  relation: '>=' | '<=' | '<' | '=';
  limit: number;
}

export interface Table {
  title: string;
  columns: readonly string[];
  rows: readonly (readonly string[])[];
}

/** What a bench hands back; name, host and date are added by whoever ran it. */
export interface Findings {
  title: string;
  /** Of everything that was measured. */
  versions: Record<string, string>;
  tables: readonly Table[];
  /** Plain data; every rate named aggregate or perRequest, every repetition a Spread. */
  figures: Record<string, unknown>;
  bars: readonly Bar[];
  /** What a reader must know to read the figures right. */
  notes?: readonly string[];
}

export interface Report extends Findings {
  bench: string;
  measuredAt: string;
  host: Host;
  settings: Record<string, number | string>;
}

export function holds(bar: Bar): boolean {
  switch (bar.relation) {
    case '>=':
      return bar.value >= bar.limit;
    case '<=':
      return bar.value <= bar.limit;
    case '<':
      return bar.value < bar.limit;
    case '=':
      return bar.value === bar.limit;
  }
}

/** NaN compares false, so a figure that could not be computed fails its bar. */
export function failedBars(report: Findings): Bar[] {
  return report.bars.filter(bar => !holds(bar));
}

export function barText(bar: Bar): string {
  return `${bar.name}: ${number(bar.value)}, wanted ${bar.relation} ${number(bar.limit)}`;
}

export function reportJson(report: Report): string {
  return JSON.stringify({ ...report, bars: report.bars.map(bar => ({ ...bar, holds: holds(bar) })) });
}

export function reportText(report: Report): string {
  const { host } = report;
  const lines = [
    report.title,
    '',
    `CPU       ${host.cpuModel}, ${host.coreCount} cores, ${host.cpuFlags.join(' ') || 'flags unknown'}; ${gib(host.memoryBytes)} GiB`,
    `System    ${host.platform}; load ${host.loadAverage.toFixed(2)} before the run`,
    `Versions  ${pairs(report.versions)}`,
    `Settings  ${pairs(report.settings)}`,
  ];
  for (const table of report.tables) lines.push('', table.title, ...tableLines(table));
  if (report.bars.length > 0) {
    lines.push('', 'Bars', ...report.bars.map(bar => `  ${holds(bar) ? 'holds' : 'FAILS'}  ${barText(bar)}`));
  }
  if (report.notes?.length) lines.push('', ...report.notes.map(note => `Note: ${note}`));
  return lines.join('\n');
}

/** First column to the left, the others, which are numbers, to the right. */
function tableLines(table: Table): string[] {
  const all = [table.columns, ...table.rows];
  const widths = table.columns.map((_, column) => Math.max(...all.map(row => (row[column] ?? '').length)));
  const line = (row: readonly string[]) =>
    `  ${widths.map((width, column) => (column === 0 ? (row[column] ?? '').padEnd(width) : (row[column] ?? '').padStart(width))).join('  ')}`.trimEnd();
  return [line(table.columns), `  ${widths.map(width => '-'.repeat(width)).join('  ')}`, ...table.rows.map(line)];
}

function pairs(record: Record<string, number | string>): string {
  return Object.entries(record)
    .map(([name, value]) => `${name} ${value}`)
    .join(', ');
}

function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return Number.isInteger(value) ? String(value) : value.toPrecision(4);
}

function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(0);
}
