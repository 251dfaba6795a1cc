import { expect, test } from 'vitest';
import { judgeAudit } from '../../scripts/supervisor/audit-report.ts';

const report = (severity: string) =>
  JSON.stringify({
    auditReportVersion: 2,
    vulnerabilities: {
      left: { name: 'left', severity, via: [{ source: 1, title: 'Runs what it is sent', url: 'https://advisories.test/1' }] },
      right: { name: 'right', severity: 'low', via: ['left'] },
    },
  });

test.each(['high', 'critical'])('a %s weakness is bad, and named with its cause', severity => {
  const { isBad, lines } = judgeAudit(report(severity));
  expect(isBad).toBe(true);
  expect(lines).toEqual([`${severity}: left: Runs what it is sent https://advisories.test/1`, 'low: right: through left']);
});

test.each(['info', 'low', 'moderate'])('a %s one is told only', severity => {
  const { isBad, lines } = judgeAudit(report(severity));
  expect(isBad).toBe(false);
  expect(lines[0]).toMatch(new RegExp(`^${severity}: left`));
});

test('none is said', () => {
  expect(judgeAudit('{"vulnerabilities":{}}')).toEqual({ isBad: false, lines: ['Packages: no known weakness.'] });
});

test.each([
  ['', 'no report came'],
  ['not json', 'no report came'],
  ['{"message":"405 Method Not Allowed\\nmore","error":{"summary":""}}', '405 Method Not Allowed'],
  ['null', 'no report came'],
])('without a report nothing is judged: %j', (output, reason) => {
  expect(judgeAudit(output)).toEqual({ isBad: false, lines: [`Packages were not audited: ${reason}`] });
});
