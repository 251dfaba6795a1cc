/** TraceContext: what keeps to the recommendation is read, all else is nothing. */
import { describe, expect, test } from 'vitest';
import { formatTraceparent, parseTraceparent, validTracestate } from '../../shared/trace-context.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';

describe('traceparent', () => {
  test('is read and written', () => {
    const text = `00-${TRACE}-${SPAN}-01`;
    expect(parseTraceparent(text)).toEqual({ traceId: TRACE, spanId: SPAN, isSampled: true });
    expect(formatTraceparent(parseTraceparent(text)!)).toBe(text);
    expect(parseTraceparent(`00-${TRACE}-${SPAN}-02`)?.isSampled).toBe(false);
  });

  test('of a later version is read as far as it is known', () => {
    expect(parseTraceparent(`cc-${TRACE}-${SPAN}-03-more`)).toEqual({ traceId: TRACE, spanId: SPAN, isSampled: true });
    expect(parseTraceparent(`cc-${TRACE}-${SPAN}-03`)?.traceId).toBe(TRACE);
  });

  test.each([
    undefined,
    null,
    '',
    'x',
    `ff-${TRACE}-${SPAN}-01`,
    `00-${'0'.repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE}-${SPAN}-01-more`,
    `00-${TRACE}-${SPAN}-01more`,
    `cc-${TRACE}-${SPAN}-01more`,
    ` 00-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01, 00-${TRACE}-${SPAN}-01`,
    `cc-${TRACE}-${SPAN}-01-${'x'.repeat(1000)}`,
  ])('is nothing: %j', text => {
    expect(parseTraceparent(text)).toBeUndefined();
  });
});

describe('tracestate', () => {
  test.each([
    ['congo=t61rcWkgMzE', 'congo=t61rcWkgMzE'],
    ['rojo=00f067aa0ba902b7 , congo=t61rcWkgMzE,', 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE'],
    ['tenant@vendor=a b', 'tenant@vendor=a b'],
  ])('%j', (given, kept) => {
    expect(validTracestate(given)).toBe(kept);
  });

  test.each([undefined, '', ',', 'novalue', 'UPPER=1', 'a=', 'a=b=c', `a=${'x'.repeat(600)}`, 'a=ü', Array(33).fill('a=b').join()])(
    'is nothing: %j',
    given => {
      expect(validTracestate(given)).toBeUndefined();
    },
  );
});
