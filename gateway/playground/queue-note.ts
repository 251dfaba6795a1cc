/** QueueNote: what the gateway's comments say of a request that has no text yet: `queued position=3 eta_ms=1200`, or `working`. */

export interface QueueNote {
  isWorking: boolean;
  /** Place in the queue, from 1. */
  position: number | undefined;
  /** Estimated milliseconds to the first token. */
  etaMs: number | undefined;
}

/** Undefined for a comment of another kind. */
export function parseQueueNote(comment: string): QueueNote | undefined {
  const [state, ...facts] = comment.trim().split(' ');
  if (state !== 'queued' && state !== 'working') return undefined;
  const numbers = new Map(facts.map(fact => fact.split('=') as [string, string]));
  return { isWorking: state === 'working', position: count(numbers.get('position')), etaMs: count(numbers.get('eta_ms')) };
}

export function describeQueueNote(note: QueueNote): string {
  if (note.isWorking) return 'Taken by a batcher: reading the prompt';
  const parts = ['Waiting in the queue'];
  if (note.position !== undefined) parts.push(`position ${note.position}`);
  if (note.etaMs !== undefined) parts.push(`first token in about ${duration(note.etaMs)}`);
  return parts.join(' · ');
}

export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  return seconds < 100 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds / 60)} min`;
}

function count(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,12}$/.test(text) ? Number(text) : undefined;
}
