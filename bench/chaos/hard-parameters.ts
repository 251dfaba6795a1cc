/** HardParameters: fields of requests of the chaos run that make an answer hard to be taken up by another batcher: stops, log-probabilities, structures, calls. */

const CALL_TOKENS = 120;
const TOOLS = [
  tool('get_weather', { city: { type: 'string', minLength: 3, maxLength: 24 }, unit: { enum: ['celsius', 'fahrenheit'] } }),
  tool('save_note', {
    title: { type: 'string', maxLength: 32 },
    lines: { type: 'array', items: { type: 'string' }, minItems: 1, maxItems: 3 },
  }),
];

function tool(name: string, properties: Record<string, unknown>) {
  const parameters = { type: 'object', properties, required: Object.keys(properties), additionalProperties: false };
  return { type: 'function', function: { name, parameters } };
}

/** On top of the seeded sampling, in turn: what makes a continuation hard. */
export const HARD_PARAMETERS: readonly Record<string, unknown>[] = [
  {},
  { stop: [' the', 'zzz'], ignore_eos: false },
  { logprobs: true, top_logprobs: 2 },
  { messages: [{ role: 'user', content: 'Write a line of many emojis, then the word for water in Japanese, Arabic and Greek.' }] },
  // Whoever takes the answer up finds its place in the structure by the tokens alone.
  { guided_regex: '(?:[A-Z][a-z]{1,8}: "[^"\\n]{4,12}"(?:, |; )){3,9}end', ignore_eos: false },
  // And in a call, what of it was told.
  { tools: TOOLS, tool_choice: 'required', max_tokens: CALL_TOKENS },
  { tools: TOOLS, tool_choice: { type: 'function', function: { name: 'save_note' } }, max_tokens: CALL_TOKENS },
];
