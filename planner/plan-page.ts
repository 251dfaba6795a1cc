/**
 * PlanPage: a plan as one HTML file that stands on its own: its tables, and the curve around the knee as plots (uPlot, inlined). It loads nothing.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Objectives } from './goodput.ts';
import type { TrialFigures } from './simulation.ts';

export interface PlanPageContent {
  title: string;
  tables: readonly { title: string; columns: readonly string[]; rows: readonly (readonly string[])[] }[];
  notes?: readonly string[];
  /** By rate. */
  curve: readonly TrialFigures[];
  knee: TrialFigures | undefined;
  objectives: Objectives;
}

interface PlotData {
  id: string;
  title: string;
  x: string;
  y: string;
  xs: readonly number[];
  series: readonly { name: string; values: readonly (number | null)[] }[];
  /** Upright lines. */
  marks: readonly { name: string; x: number }[];
}

const require = createRequire(import.meta.url);

export async function planPage(content: PlanPageContent): Promise<string> {
  const [library, style, plots] = await Promise.all([
    readFile(require.resolve('uplot/dist/uPlot.iife.min.js'), 'utf8'),
    readFile(require.resolve('uplot/dist/uPlot.min.css'), 'utf8'),
    readFile(join(import.meta.dirname, 'plan-page-plots.js'), 'utf8'),
  ]);
  const data = plotsOf(content);
  return [
    '<!doctype html>',
    '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
    `<title>Sluice plan</title><style>${style}\n${PAGE_STYLE}</style></head><body>`,
    `<h1>${escaped(content.title)}</h1>`,
    '<main>',
    ...data.map(({ id, title }) => `<figure><figcaption>${escaped(title)}</figcaption><div id="${id}"></div></figure>`),
    ...content.tables.map(tableHtml),
    ...(content.notes ?? []).map(note => `<p class="note">${escaped(note)}</p>`),
    '</main>',
    // The one text that would end an element early.
    `<script type="application/json" id="plan">${JSON.stringify(data).replaceAll('<', '\\u003c')}</script>`,
    `<script>${scriptText(library)}</script>`,
    `<script>${scriptText(plots)}</script>`,
    '</body></html>\n',
  ].join('\n');
}

function plotsOf({ curve, knee, objectives }: PlanPageContent): PlotData[] {
  const rates = curve.map(trial => trial.rate);
  const marks = knee === undefined ? [] : [{ name: 'knee', x: knee.rate }];
  const of = (value: (trial: TrialFigures) => number | undefined) => curve.map(trial => value(trial) ?? null);
  const level = (value: number) => curve.map(() => value);
  const x = 'requests/s on one accelerator';
  const byThroughput = curve.toSorted((a, b) => a.aggregateTokensPerSecond - b.aggregateTokensPerSecond);
  return [
    {
      ...{ id: 'throughput', title: 'Throughput and goodput', x, y: 'aggregate tokens/s', xs: rates, marks },
      series: [
        { name: 'all', values: of(trial => trial.aggregateTokensPerSecond) },
        { name: 'as promised', values: of(trial => trial.goodputAggregateTokensPerSecond) },
      ],
    },
    {
      ...{ id: 'latency', title: 'Throughput against latency', x: 'aggregate tokens/s', y: 'TTFT, s' },
      xs: byThroughput.map(trial => trial.aggregateTokensPerSecond),
      marks: knee === undefined ? [] : [{ name: 'knee', x: knee.aggregateTokensPerSecond }],
      series: [
        { name: 'p50', values: byThroughput.map(trial => seconds(trial.ttftMs?.p50)) },
        { name: 'p99', values: byThroughput.map(trial => seconds(trial.ttftMs?.p99)) },
        { name: 'objective', values: level(objectives.ttftMs / 1000) },
      ],
    },
    {
      ...{ id: 'ttft', title: 'Time to first token', x, y: 's', xs: rates, marks },
      series: [
        { name: 'p50', values: of(trial => seconds(trial.ttftMs?.p50) ?? undefined) },
        { name: 'p99', values: of(trial => seconds(trial.ttftMs?.p99) ?? undefined) },
        { name: 'objective', values: level(objectives.ttftMs / 1000) },
      ],
    },
    {
      ...{ id: 'tpot', title: 'Time per output token', x, y: 'ms', xs: rates, marks },
      series: [
        { name: 'p50', values: of(trial => trial.tpotMs?.p50) },
        { name: 'p99', values: of(trial => trial.tpotMs?.p99) },
        { name: 'objective', values: level(objectives.tpotMs) },
      ],
    },
    {
      ...{ id: 'promise', title: 'Requests that came as promised', x, y: '%', xs: rates, marks },
      series: [
        { name: 'as promised', values: of(trial => trial.attainment * 100) },
        ...(curve.some(trial => trial.rejectionRate > 0) ? [{ name: 'refused', values: of(trial => trial.rejectionRate * 100) }] : []),
      ],
    },
    {
      ...{ id: 'use', title: 'Use of the accelerator', x, y: '%, rows', xs: rates, marks },
      series: [
        { name: 'busy, % of the time', values: of(trial => trial.busyShare * 100) },
        { name: 'KV memory at most, %', values: of(trial => trial.peakKvUse * 100) },
        { name: 'mean batch, rows', values: of(trial => trial.meanBatch) },
      ],
    },
  ];
}

function seconds(ms: number | undefined): number | null {
  return ms === undefined ? null : ms / 1000;
}

function tableHtml({ title, columns, rows }: PlanPageContent['tables'][number]): string {
  const line = (cells: readonly string[], tag: 'th' | 'td') =>
    `<tr>${cells.map(cell => `<${tag}>${escaped(cell)}</${tag}>`).join('')}</tr>`;
  return `<section><h2>${escaped(title)}</h2><div class="wide"><table><thead>${line(columns, 'th')}</thead><tbody>${rows.map(row => line(row, 'td')).join('')}</tbody></table></div></section>`;
}

function scriptText(source: string): string {
  return source.replaceAll('</script', '<\\/script');
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, character => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[character]!);
}

const PAGE_STYLE = `
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 78rem; padding: 1.5rem; }
h1, .note { overflow-wrap: anywhere; } h1 { font-size: 1.25rem; } h2, figcaption { font-size: 1rem; font-weight: 600; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1.5rem; }
figure { margin: 0; min-width: 0; overflow: hidden; } section, .note { grid-column: 1 / -1; margin: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: 0.2rem 0.7rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.note { color: GrayText; }
`;
