/**
 * ChatSession: a chat in a terminal: lines are read and answered one after the other; Ctrl-C stops an answer and not the session, which ends by
 * /exit or the end of the input.
 */
import { createInterface, type Interface } from 'node:readline';
import { ChatAnswer } from './chat-answer.ts';
import { ChatLines } from './chat-lines.ts';
import { type ChatScreen, figures, noteText } from './chat-screen.ts';
import { CommandError } from './command-error.ts';
import type { Conversation } from './conversation.ts';
import type { GatewayTarget } from './gateway-target.ts';

export interface SessionOptions {
  target: GatewayTarget;
  conversation: Conversation;
  /** Fields of each request. */
  parameters: Record<string, unknown>;
  screen: ChatScreen;
  /** Tell tokens per second after each answer. */
  hasFigures: boolean;
}

const PROMPT = '> ';
const CONTINUED = '. ';
const HELP = `/reset            forget what was said
/system [text]    set the system message, or take it away
/model [name]     ask another model, or say which it is
/exit             leave (or Ctrl-D)
Ctrl-C stops an answer. A message of several lines stands between two lines of """.`;

export class ChatSession {
  readonly #options: SessionOptions;
  #answering: AbortController | undefined;

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  /** Of the answer under way; nothing happens where there is none. */
  stop(): void {
    this.#answering?.abort();
  }

  /** One question; what was said before and the answer belong to the conversation. False when there was no whole answer. */
  async ask(question: string): Promise<boolean> {
    const { target, conversation, parameters, screen, hasFigures } = this.#options;
    const stop = new AbortController();
    this.#answering = stop;
    const answer = new ChatAnswer({
      target,
      messages: conversation.with(question),
      parameters,
      signal: stop.signal,
      onReasoning: piece => screen.reasoning(piece),
      onNote: note => screen.note(noteText(note)),
      onBreak: () => screen.note('the connection broke, making it again …'),
    });
    let text = '';
    try {
      for await (const piece of answer.pieces()) {
        screen.piece(piece);
        text += piece;
      }
      screen.endLine();
      conversation.add(question, text);
      if (hasFigures) screen.say(figures(answer.end));
      return true;
    } catch (thrown) {
      if (stop.signal.aborted) {
        screen.endLine();
        screen.say('stopped');
        // What was said until then was said.
        if (text !== '') conversation.add(question, text);
      } else if (thrown instanceof CommandError) {
        screen.error(thrown.message);
      } else {
        throw thrown;
      }
      return false;
    } finally {
      this.#answering = undefined;
    }
  }

  /** Until the end of the input. */
  async run(input: NodeJS.ReadStream, output: NodeJS.WriteStream): Promise<void> {
    const { screen } = this.#options;
    const lines = new ChatLines();
    const terminal = createInterface({ input, output, terminal: true, historySize: 200 });
    terminal.on('SIGINT', () => this.#interrupted(terminal, lines));
    terminal.setPrompt(PROMPT);
    terminal.prompt();
    for await (const line of terminal) {
      const taken = lines.take(line);
      if (taken?.kind === 'message') await this.ask(taken.text);
      else if (taken?.kind === 'command' && !this.#command(taken.name, taken.argument)) break;
      terminal.setPrompt(lines.isOpen ? CONTINUED : PROMPT);
      terminal.prompt();
    }
    screen.endLine();
    terminal.close();
  }

  #interrupted(terminal: Interface, lines: ChatLines): void {
    if (this.#answering !== undefined) {
      this.stop();
      return;
    }
    const isEmpty = terminal.line === '' && !lines.isOpen;
    lines.drop();
    // Ctrl-E, Ctrl-U: what was typed is gone.
    terminal.write(null, { ctrl: true, name: 'e' });
    terminal.write(null, { ctrl: true, name: 'u' });
    if (isEmpty) this.#options.screen.say('(Ctrl-D or /exit leaves)');
    terminal.setPrompt(PROMPT);
    terminal.prompt();
  }

  /** False to end the session. */
  #command(name: string, argument: string): boolean {
    const { conversation, parameters, screen } = this.#options;
    switch (name) {
      case 'exit':
      case 'quit':
      case 'bye':
        return false;
      case 'reset':
        conversation.reset();
        screen.say('What was said is forgotten.');
        return true;
      case 'system':
        conversation.system = argument === '' ? undefined : argument;
        screen.say(argument === '' ? 'There is no system message.' : 'The system message is set.');
        return true;
      case 'model':
        if (argument !== '') parameters.model = argument;
        screen.say(`The model is ${String(parameters.model)}.`);
        return true;
      default:
        screen.say(name === 'help' || name === '?' ? HELP : `There is no command /${name}; /help lists them.`);
        return true;
    }
  }
}
