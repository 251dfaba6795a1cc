/** Conversation: what was said, kept in the browser tab so that a reload loses nothing, unfinished answers included. */
import type { AnswerRecord } from './answer.ts';

export type Turn = { role: 'user'; text: string } | { role: 'assistant'; answers: AnswerRecord[] };

const SAVE_MS = 500;
const STORAGE_NAME = 'sluice.playground.conversation';

export class Conversation {
  readonly #storage: Storage;
  turns: Turn[];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Goes on with what the storage has, if that can be read. */
  constructor(storage: Storage) {
    this.#storage = storage;
    this.turns = readTurns(storage.getItem(STORAGE_NAME));
  }

  /** For what changes many times a second. */
  saveSoon(): void {
    this.#timer ??= setTimeout(() => this.save(), SAVE_MS);
  }

  save(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    try {
      this.#storage.setItem(STORAGE_NAME, JSON.stringify(this.turns));
    } catch {
      // It is full: the conversation goes on, and does not survive a reload.
    }
  }

  clear(): void {
    this.turns = [];
    this.#storage.removeItem(STORAGE_NAME);
  }
}

function readTurns(json: string | null): Turn[] {
  try {
    const turns: unknown = JSON.parse(json ?? '[]');
    return Array.isArray(turns) && turns.every(isTurn) ? turns : [];
  } catch {
    return [];
  }
}

function isTurn(value: unknown): value is Turn {
  const turn = value as Partial<Record<'role' | 'text' | 'answers', unknown>> | null;
  if (turn?.role === 'user') return typeof turn.text === 'string';
  return turn?.role === 'assistant' && Array.isArray(turn.answers) && turn.answers.every(answer => typeof answer?.text === 'string');
}
