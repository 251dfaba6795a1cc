/** ToldAnswer: what a rig has told of a job, put together, for answers that are more than text; and a rig whose greedy answer the test decides. */
import { expect } from 'vitest';
import type { Job, Prompt } from '../../shared/job.ts';
import { isTerminal, joinedCalls, type TokenEvent } from '../../shared/token-event.ts';
import { promptText, Rig, type RigOptions } from './rig.ts';

export const ASCII = ['\n', ...Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i))];

export interface ToldAnswer {
  /** Absent where there was none. */
  reasoning?: string;
  text: string;
  calls: [name: string | undefined, json: string][];
  end: string[];
}

export function toldBy(events: readonly TokenEvent[], choice = 0): ToldAnswer {
  const deltas = events.flatMap(event => (event.type === 'delta' && event.choice === choice ? [event] : []));
  const reasoning = deltas.map(delta => delta.reasoning ?? '').join('');
  return {
    ...(reasoning !== '' && { reasoning }),
    text: deltas.map(delta => delta.text).join(''),
    calls: joinedCalls(...deltas.map(delta => delta.calls)).map(call => [call.name, call.arguments]),
    end: deltas.flatMap(delta => delta.finishReason ?? []),
  };
}

export async function answered(rig: Rig, job: Job): Promise<ToldAnswer> {
  await rig.submit(job);
  await rig.settled();
  expect(rig.eventsOf(job.id).filter(isTerminal)).toHaveLength(1);
  return toldBy(rig.eventsOf(job.id));
}

/** Logits by which a greedy answer to the prompt is these words of the vocabulary, and then the end. */
export function saying(prompt: Prompt, said: Iterable<string>, words: readonly string[] = ASCII): Pick<RigOptions, 'shapeLogits'> {
  const start = promptText(prompt).length - 1;
  const tokens = Array.from(said, word => words.indexOf(word) + 1);
  return { shapeLogits: (logits, _, position) => (logits[tokens[position - start] ?? 0] = 100) };
}

/** A job that has been answered is the same where a second batcher takes it up, after however many of its events. */
export async function expectSameElsewhere(rig: Rig, job: Job, { options, step }: { options: RigOptions; step: number }): Promise<void> {
  const events = rig.eventsOf(job.id);
  for (let kept = 0; kept <= events.length; kept += step) {
    const next = new Rig(options);
    next.events.set(job.id, structuredClone(events.slice(0, kept)));
    await next.submit(job, 2);
    await next.settled();
    expect(toldBy(next.eventsOf(job.id)), `${kept} events were recorded`).toEqual(toldBy(events));
    await next.close();
  }
}
