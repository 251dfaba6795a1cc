/** QuickThread: the thread that answers quick questions, one after the other, while the batcher's own thread goes on with its steps. */
import { setPriority } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { toApiError } from '../../shared/errors.ts';
import type { ToolFormat } from '../tools/tool-format.ts';
import { type QuickAnswer, type QuickQuestion, quickAnswer } from './quick-answer.ts';
import { openQuickVocabulary } from './quick-vocabulary.ts';

export interface QuickThreadData {
  modelDirectory: string;
  contextTokens: number;
  toolFormat?: ToolFormat | undefined;
}

export interface QuickThreadQuestion {
  number: number;
  question: QuickQuestion;
}

export type QuickThreadReply = { number: number } & (
  | { answer: QuickAnswer }
  | { refusal: { code: string; message: string; param: string | undefined } }
  /** Our fault, or the machine's: another try may do better. */
  | { fault: string }
);

/** A quarter of a busy processor: running answers come first. */
const NICENESS = 5;

// Of this thread alone, which is so on Linux only.
if (process.platform === 'linux') setPriority(0, NICENESS);
const vocabulary = await openQuickVocabulary(workerData as QuickThreadData);

parentPort!.on('message', ({ number, question }: QuickThreadQuestion) => {
  parentPort!.postMessage(reply(number, question));
});

function reply(number: number, question: QuickQuestion): QuickThreadReply {
  try {
    return { number, answer: quickAnswer(question, vocabulary) };
  } catch (thrown) {
    const { code, message, param, cause } = toApiError(thrown);
    if (code === 'internal_error') return { number, fault: cause instanceof Error ? (cause.stack ?? cause.message) : String(cause) };
    return { number, refusal: { code, message, param } };
  }
}
