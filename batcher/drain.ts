/** Drain: how a batcher leaves: takes nothing new, lets what runs finish for a while, hands the rest over, and lets its loop come to its end. */
import { setTimeout as sleep } from 'node:timers/promises';

export interface DrainParts {
  /** What takes jobs off queues; closed in this order. */
  takers: readonly { stopTaking(): void; close(): Promise<void> }[];
  /** Says that it takes nothing any more. */
  heartbeat: { beat(): Promise<void> };
  /** Jobs taken and not settled. */
  openCount(): number;
  timeoutMs: number;
  /** Back to the queue with what is left. */
  giveBackAll(): Promise<void>;
  loop: { stop(): void };
  /** The loop's end. */
  running: Promise<void>;
  publisher: { idle(): Promise<void> };
}

const PAUSE_MS = 20;

export async function drain(parts: DrainParts): Promise<void> {
  for (const taker of parts.takers) taker.stopTaking();
  await parts.heartbeat.beat();
  const deadline = performance.now() + parts.timeoutMs;
  while (parts.openCount() > 0 && performance.now() < deadline) await sleep(PAUSE_MS);
  await parts.giveBackAll();
  parts.loop.stop();
  await parts.running;
  await parts.publisher.idle();
  for (const taker of parts.takers) await taker.close();
}
