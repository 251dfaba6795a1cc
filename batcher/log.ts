/**
 * Log: one JSON line an event on standard output. A reader that is slow or gone never holds up the batcher: past a bound lines are dropped
 * and counted. (pino's own destination waits without end, on exit too, when the reader is gone.)
 */
import { type Logger, pino } from 'pino';

const BUFFERED_BYTES = 1 << 20;

export function openLog(options: { level: string; batcherId: string }): Logger {
  const { stdout } = process;
  stdout.on('error', () => undefined);
  let droppedCount = 0;
  const destination = {
    write(line: string): void {
      if (!stdout.writable || stdout.writableLength > BUFFERED_BYTES) {
        droppedCount += 1;
        return;
      }
      if (droppedCount > 0) {
        stdout.write(
          `${JSON.stringify({ level: 40, time: Date.now(), batcher: options.batcherId, msg: `${droppedCount} log lines were dropped` })}\n`,
        );
        droppedCount = 0;
      }
      stdout.write(line);
    },
  };
  return pino({ level: options.level, base: { batcher: options.batcherId } }, destination);
}
