/** AuditReport: what `npm audit --json` found, judged: high and critical weaknesses are bad, lesser ones are told, no report is no judgement. */
import { z } from 'zod';

export interface AuditJudgement {
  isBad: boolean;
  /** For people. */
  lines: string[];
}

const Report = z.looseObject({
  vulnerabilities: z.record(
    z.string(),
    z.looseObject({
      severity: z.string(),
      /** The advisories themselves, or names of packages by which it is affected. */
      via: z.array(z.union([z.string(), z.looseObject({ title: z.string().optional(), url: z.string().optional() })])),
    }),
  ),
});
const Failure = z.looseObject({ message: z.string() });

const BAD: ReadonlySet<string> = new Set(['high', 'critical']);

export function judgeAudit(output: string): AuditJudgement {
  const json = parsed(output);
  const report = Report.safeParse(json).data;
  if (report === undefined) {
    const reason = Failure.safeParse(json).data?.message ?? 'no report came';
    return { isBad: false, lines: [`Packages were not audited: ${reason.split('\n')[0]}`] };
  }
  const found = Object.entries(report.vulnerabilities);
  if (found.length === 0) return { isBad: false, lines: ['Packages: no known weakness.'] };
  const lines = found.map(([name, { severity, via }]) => {
    const causes = via.map(cause => (typeof cause === 'string' ? `through ${cause}` : [cause.title, cause.url].filter(Boolean).join(' ')));
    return `${severity}: ${name}: ${causes.join('; ')}`;
  });
  return { isBad: found.some(([, { severity }]) => BAD.has(severity)), lines };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
