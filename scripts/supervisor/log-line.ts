/** LogLine: a line of a child's log as a person wants to see it. Our programs print one JSON object an event, with pino's levels. */

const WARNING_LEVEL = 40;
/** The gateway's events have no levels; this one is a bug of ours. */
const FAULT_EVENT = 'fault';

/** Undefined for what needs nobody's eye: plain text too, which counts only when its program ends. */
export function warningIn(line: string): string | undefined {
  const event = jsonEvent(line);
  const isWarning = event !== undefined && (Number(event.level) >= WARNING_LEVEL || event.event === FAULT_EVENT);
  return isWarning ? readable(line) : undefined;
}

/** What a batcher says of the room it has for keys and values, once, at its start. */
export function capacityIn(line: string): string | undefined {
  const event = jsonEvent(line);
  return event?.fullSequences !== undefined && typeof event.msg === 'string' ? event.msg : undefined;
}

/** Message and cause of an event; any other line as it is. */
export function readable(line: string): string {
  const event = jsonEvent(line);
  if (event === undefined) return line;
  const said = [event.msg ?? event.event, messageOf(event.err) ?? messageOf(event.error) ?? messageOf(event.cause)];
  return said.filter(part => part !== undefined).join(': ') || line;
}

/** Of an error that was logged as an object, or as text whose first line says it. */
function messageOf(error: unknown): string | undefined {
  if (typeof error === 'object' && error !== null) return messageOf((error as { message?: unknown }).message);
  return typeof error === 'string' ? error.split('\n', 1)[0] : undefined;
}

function jsonEvent(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
