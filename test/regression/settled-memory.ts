/** SettledMemory: loaded by --import into a process whose memory a test watches: SIGUSR2 collects its garbage and adds its resident bytes to the file SETTLED_MEMORY_FILE. */
import { appendFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

process.on('SIGUSR2', () => {
  collect();
  collect();
  appendFileSync(process.env.SETTLED_MEMORY_FILE!, `${process.memoryUsage.rss()}\n`);
});
