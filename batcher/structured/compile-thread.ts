/** CompileThread: compiles one structure after the other in a thread of its own; one reply to each message, in order. */
import { parentPort, workerData } from 'node:worker_threads';
import type { Automaton } from './automaton.ts';
import { GrammarError } from './grammar.ts';
import { type CompileReply, compileStructure } from './grammar-compilation.ts';
import type { AnswerForm } from './reasoned-structure.ts';
import type { Spelling } from './spelled-vocabulary.ts';

const spelling = workerData as Spelling;

parentPort!.on('message', (structure: AnswerForm) => {
  const reply = compile(structure);
  parentPort!.postMessage(reply, 'automaton' in reply ? buffersOf(reply.automaton) : []);
});

function compile(structure: AnswerForm): CompileReply {
  try {
    return { automaton: compileStructure(structure, spelling) };
  } catch (error) {
    if (error instanceof GrammarError) return { refusal: { message: error.message, where: error.where, param: error.param } };
    // A stack that does not suffice is the structure's doing.
    if (error instanceof RangeError) return { refusal: { message: 'it is nested too deep', where: undefined } };
    throw error;
  }
}

/** Handed over, not copied. */
function buffersOf({ bytes, controlEdges, epsilons, calls, isFinal, endTokens }: Automaton): ArrayBuffer[] {
  const arrays = [bytes, controlEdges, epsilons, calls].flatMap(({ start, entries }) => [start, entries]);
  return [...arrays, isFinal, endTokens].map(({ buffer }) => buffer as ArrayBuffer);
}
