/** The batcher's process: reads the settings, opens the batcher, drains it on SIGTERM or SIGINT or when an operator asks; a second signal, a while later, ends it at once. */
import { openLog } from './log.ts';
import { openBatcher } from './open-batcher.ts';
import { readSettings } from './settings.ts';

/** A terminal tells all its programs, and those that started us hand on what they were told. */
const SAME_SIGNAL_MS = 1_000;

const settings = readSettings(process.argv.slice(2), process.env);
const log = openLog({ level: settings.logLevel, batcherId: settings.batcherId });
try {
  const batcher = await openBatcher(settings, log);
  let endingSince: number | undefined;
  const end = (why: { signal: string } | { asked: 'by the operator' }) => {
    endingSince = performance.now();
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
      if (endingSince === undefined) end({ signal });
      else if (performance.now() - endingSince > SAME_SIGNAL_MS) process.exit(1);
    });
  }
  void batcher.drainAsked.then(() => {
    if (endingSince === undefined) end({ asked: 'by the operator' });
  });
} catch (error) {
  log.fatal({ error: (error as Error).message }, 'cannot start');
  process.exit(2);
}
