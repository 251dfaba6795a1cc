/**
 * EndWithParent: loaded before a Node program (`node --import`), ends that program when the process that started it is gone, however it
 * went. First by SIGTERM, so that the program can clean up; a program that is deaf to it is killed.
 */
import { isMainThread } from 'node:worker_threads';

const CHECK_MS = 250;
const GRACE_MS = 6_000;

if (isMainThread) {
  // Named by the parent, since it may be gone before this line; not for grandchildren, whose parent is another.
  const parent = Number(process.env.SLUICE_PARENT_PID ?? process.ppid);
  delete process.env.SLUICE_PARENT_PID;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    setTimeout(() => process.kill(process.pid, 'SIGKILL'), GRACE_MS).unref();
    process.kill(process.pid, 'SIGTERM');
  }, CHECK_MS);
  timer.unref();
}
