/** TrialThread: runs parts of trials in a thread of its own, one after the other; told the scenario once. */
import { parentPort, workerData } from 'node:worker_threads';
import { type Part, type Scenario, simulate, type Trial } from './simulation.ts';

export interface TrialPart extends Part {
  ticket: number;
  trial: Trial;
}

const scenario = workerData as Scenario;
parentPort?.on('message', ({ ticket, trial, ...part }: TrialPart) => {
  parentPort?.postMessage({ ticket, data: simulate(scenario, trial, part) });
});
