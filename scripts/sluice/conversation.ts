/** Conversation: what was said so far, as the chat call wants it. A question that got no answer is not part of it. */

export interface Message {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

export class Conversation {
  #system: string | undefined;
  #turns: Message[] = [];

  constructor(system: string | undefined) {
    this.#system = system;
  }

  get system(): string | undefined {
    return this.#system;
  }

  set system(text: string | undefined) {
    this.#system = text;
  }

  get turnCount(): number {
    return this.#turns.length;
  }

  with(question: string): Message[] {
    const system: Message[] = this.#system === undefined ? [] : [{ role: 'system', content: this.#system }];
    return [...system, ...this.#turns, { role: 'user', content: question }];
  }

  add(question: string, answer: string): void {
    this.#turns.push({ role: 'user', content: question }, { role: 'assistant', content: answer });
  }

  reset(): void {
    this.#turns = [];
  }
}
