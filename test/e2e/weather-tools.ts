/** WeatherTools: two functions for tests with the real model, and whether calls of them fit. */
import { expect } from 'vitest';
import { faultOf } from '../../bench/structured/schema-run.ts';

export const WEATHER = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 20 }, unit: { enum: ['celsius', 'fahrenheit'] } },
  required: ['city', 'unit'],
  additionalProperties: false,
};
export const SUM = {
  type: 'object',
  properties: { a: { type: 'integer', minimum: 0, maximum: 999 }, b: { type: 'integer', minimum: 0, maximum: 999 } },
  required: ['a', 'b'],
};
const SCHEMAS: Record<string, object> = { get_weather: WEATHER, add_numbers: SUM };

export const QUESTION = 'What is the weather in Paris and in Rome?';

/** Arguments as JSON. */
export function expectFit(calls: readonly { name: string; arguments: string }[]): void {
  expect(calls.length).toBeGreaterThan(0);
  for (const call of calls) expect(faultOf(SCHEMAS[call.name]!, call.arguments)).toBeUndefined();
}
