/**
 * PartialObject: an object of JSON that may have been cut off: what of it is whole. A text that was cut, or a word or number at the very end, which may
 * go on, is left out. What is no object at all is an empty one.
 */
type Place = 'key' | 'colon' | 'value' | 'next';

export function partialObject(json: string): Record<string, unknown> {
  const whole = parsedObject(json);
  return whole ?? parsedObject(closedBeginning(json)) ?? {};
}

function parsedObject(json: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

/** A quotation mark alone begins a text that does not end. */
const TOKENS = /[{}[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"|"|[^\s{}[\],:"]+/gs;

/** Up to the last member or element that is whole, and closed there. */
function closedBeginning(json: string): string {
  const closers: string[] = [];
  let place: Place = 'value';
  let wholeLength = 0;
  for (const { 0: token, index } of json.matchAll(TOKENS)) {
    const end = index + token.length;
    // A text that does not end, or a word that may go on.
    if (token === '"' || (!/[{}[\],:"]/.test(token[0]!) && end === json.length)) break;
    if (token === '{' || token === '[') {
      closers.push(token === '{' ? '}' : ']');
      place = token === '{' ? 'key' : 'value';
    } else if (token === '}' || token === ']') {
      if (closers.pop() !== token) break;
      place = 'next';
    } else if (token === ',') {
      place = closers.at(-1) === '}' ? 'key' : 'value';
    } else if (token === ':') {
      place = 'value';
    } else {
      place = place === 'key' ? 'colon' : 'next';
    }
    if (place === 'next' || token === '{' || token === '[') wholeLength = end;
    if (closers.length === 0) break;
  }
  return closed(json.slice(0, wholeLength));
}

/** With the ends of what is open in it. */
function closed(beginning: string): string {
  const closers: string[] = [];
  for (const [token] of beginning.matchAll(TOKENS)) {
    if (token === '{' || token === '[') closers.push(token === '{' ? '}' : ']');
    else if (token === '}' || token === ']') closers.pop();
  }
  return beginning + closers.toReversed().join('');
}
