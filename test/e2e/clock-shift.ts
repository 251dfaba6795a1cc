/** ClockShift: loaded by --import into a process whose clock a test sets: SIGUSR2 sets it by the milliseconds that the file CLOCK_SHIFT_FILE holds. */
import { readFileSync } from 'node:fs';

const RealDate = Date;
let shiftMs = 0;
process.on('SIGUSR2', () => {
  shiftMs = Number(readFileSync(process.env.CLOCK_SHIFT_FILE!, 'utf8'));
});

globalThis.Date = new Proxy(RealDate, {
  construct: (target, args: []) => (args.length === 0 ? new target(RealDate.now() + shiftMs) : new target(...args)),
  apply: target => new target(RealDate.now() + shiftMs).toString(),
  get: (target, name) => (name === 'now' ? () => RealDate.now() + shiftMs : Reflect.get(target, name)),
});
