/** PartThread: the thread of a surface of parts: feeds one input for each seed that it is sent, and says what came of it. */
import { parentPort, workerData } from 'node:worker_threads';
import { Dice } from './dice.ts';
import type { FuzzedModel } from './surface.ts';
import { PART_SURFACES, type PartSurfaceName } from './surfaces.ts';

export interface ThreadData {
  name: PartSurfaceName;
  model: FuzzedModel;
}

export type ThreadReply = { outcome: string; residentBytes: number } | { fault: string; residentBytes: number };

const { name, model } = workerData as ThreadData;
const surface = await PART_SURFACES[name].open(model);
parentPort!.on('message', (seed: number | 'close') => {
  if (seed === 'close') {
    void (surface.close?.() ?? Promise.resolve()).finally(() => parentPort!.close());
    return;
  }
  const residentBytes = () => process.memoryUsage.rss();
  surface.feed(new Dice(seed)).then(
    outcome => parentPort!.postMessage({ outcome, residentBytes: residentBytes() } satisfies ThreadReply),
    (error: Error) =>
      parentPort!.postMessage({
        fault: error.stack?.split('\n').slice(0, 4).join(' | ') ?? String(error),
        residentBytes: residentBytes(),
      } satisfies ThreadReply),
  );
});
parentPort!.postMessage({ outcome: 'open', residentBytes: 0 } satisfies ThreadReply);
