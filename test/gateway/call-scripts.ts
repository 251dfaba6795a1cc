/** CallScripts: answers of a token source that say something and call functions. */
import type { Script } from './token-source.ts';

/** Two calls, the first in pieces; `second` is the function of the other. */
export function twoCalls(second: string): Script {
  return {
    pieces: ['I look.'],
    calls: [
      { index: 0, name: 'look', arguments: '' },
      { index: 0, arguments: '{"at":' },
      { index: 0, arguments: '"it"}' },
      { index: 1, name: second, arguments: '{}' },
    ],
    stepMs: 20,
  };
}
