/** The batcher's process: reads the settings, opens the batcher, drains it on SIGTERM or SIGINT or when an operator asks; a second signal ends it at once. */
import { openLog } from './log.ts';
import { openBatcher } from './open-batcher.ts';
import { readSettings } from './settings.ts';

const settings = readSettings(process.argv.slice(2), process.env);
const log = openLog({ level: settings.logLevel, batcherId: settings.batcherId });
try {
  const batcher = await openBatcher(settings, log);
  let isEnding = false;
  const end = (why: { signal: string } | { asked: 'by the operator' }) => {
    isEnding = true;
    log.info(why, 'draining');
    batcher.drain().then(
      () => process.exit(0),
      error => {
        log.fatal({ error: (error as Error).stack }, 'drain failed');
        process.exit(1);
      },
    );
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (isEnding) process.exit(1);
      end({ signal });
    });
  }
  void batcher.drainAsked.then(() => {
    if (!isEnding) end({ asked: 'by the operator' });
  });
} catch (error) {
  log.fatal({ error: (error as Error).message }, 'cannot start');
  process.exit(2);
}
