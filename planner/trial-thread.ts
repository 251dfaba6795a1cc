/** TrialThread: runs parts of trials in a thread of its own, one after the other; told the scenario once. */
import { parentPort, workerData } from 'node:worker_threads';
import { type Scenario, simulate, type Trial } from './simulation.ts';

export interface TrialPart {
  ticket: number;
  trial: Trial;
  count: number;
  seed: number;
}

const scenario = workerData as Scenario;
parentPort?.on('message', ({ ticket, trial, count, seed }: TrialPart) => {
  parentPort?.postMessage({ ticket, data: simulate(scenario, trial, { count, seed }) });
});
