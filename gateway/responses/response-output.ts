/**
 * ResponseOutput: the answer as OpenAI's output items, told by steps: each item is added, grows, and is done before the next one is added. A call is
 * an item of its own; text before, between and behind calls is a message each time. An answer that says nothing is a message without text.
 */
import type { DeltaEvent } from '../../shared/token-event.ts';
import { type AnswerPart, answerParts } from '../answer-parts.ts';
import { callId } from '../call-id.ts';

export interface OutputTextOut {
  type: 'output_text';
  text: string;
  annotations: never[];
  logprobs: never[];
}

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

export interface OutputMessageOut {
  id: string;
  type: 'message';
  status: ItemStatus;
  role: 'assistant';
  content: OutputTextOut[];
}

export interface FunctionCallOut {
  id: string;
  type: 'function_call';
  status: ItemStatus;
  /** By which its output names it. */
  call_id: string;
  name: string;
  /** JSON, unless the model wrote something else. */
  arguments: string;
}

export interface ReasoningTextOut {
  type: 'reasoning_text';
  text: string;
}

export interface ReasoningOut {
  id: string;
  type: 'reasoning';
  status: ItemStatus;
  /** Nothing here sums up. */
  summary: never[];
  content: ReasoningTextOut[];
}

export type OutputItemOut = OutputMessageOut | FunctionCallOut | ReasoningOut;

export type OutputStep =
  | { kind: 'added' | 'done'; index: number; item: OutputItem }
  | { kind: 'grown'; index: number; item: OutputItem; piece: string };

/** With its text or arguments so far. */
export type OutputItem =
  | { type: 'message'; id: string; text: string }
  | { type: 'reasoning'; id: string; text: string }
  | { type: 'function_call'; id: string; callId: string; name: string; text: string };

export class ResponseOutput {
  readonly #responseId: string;
  readonly #items: { item: OutputItem; pieces: string[] }[] = [];
  #isOpen = false;

  constructor(responseId: string) {
    this.#responseId = responseId;
  }

  take(delta: DeltaEvent): OutputStep[] {
    return [...answerParts(delta)].flatMap(part => this.#take(part));
  }

  /** No more comes. */
  end(): OutputStep[] {
    return this.#items.length === 0 ? [...this.#add(this.#message()), ...this.#close()] : this.#close();
  }

  /** So far; `last`: the status of the last one. */
  out(last: ItemStatus): OutputItemOut[] {
    return this.#items.map((_, index) => itemOut(this.#whole(index), index === this.#items.length - 1 ? last : 'completed'));
  }

  get items(): OutputItem[] {
    return this.#items.map((_, index) => this.#whole(index));
  }

  #take(part: AnswerPart): OutputStep[] {
    switch (part.kind) {
      case 'reasoning':
        return [...(this.#isWithin('reasoning') ? [] : this.#add(this.#thoughts())), this.#grow(part.text)];
      case 'text':
        return [...(this.#isWithin('message') ? [] : this.#add(this.#message())), this.#grow(part.text)];
      case 'call': {
        const id = callId('call_', this.#responseId, { choice: 0, call: part.index });
        return this.#add({ type: 'function_call', id: `fc_${this.#ownId(part.index)}`, callId: id, name: part.name, text: '' });
      }
      case 'arguments':
        return [this.#grow(part.piece)];
    }
  }

  #add(item: OutputItem): OutputStep[] {
    const steps = this.#close();
    this.#items.push({ item, pieces: [] });
    this.#isOpen = true;
    return [...steps, { kind: 'added', index: this.#items.length - 1, item }];
  }

  #grow(piece: string): OutputStep {
    const index = this.#items.length - 1;
    const { item, pieces } = this.#items[index]!;
    pieces.push(piece);
    return { kind: 'grown', index, item, piece };
  }

  #close(): OutputStep[] {
    if (!this.#isOpen) return [];
    this.#isOpen = false;
    const index = this.#items.length - 1;
    return [{ kind: 'done', index, item: this.#whole(index) }];
  }

  #isWithin(type: OutputItem['type']): boolean {
    return this.#isOpen && this.#items.at(-1)!.item.type === type;
  }

  #thoughts(): OutputItem {
    return { type: 'reasoning', id: `rs_${bareId(this.#responseId)}`, text: '' };
  }

  #message(): OutputItem {
    return { type: 'message', id: messageId(this.#responseId, this.#items.length), text: '' };
  }

  #whole(index: number): OutputItem {
    const { item, pieces } = this.#items[index]!;
    return { ...item, text: pieces.join('') };
  }

  #ownId(call: number): string {
    return `${bareId(this.#responseId)}_${call}`;
  }
}

export function itemOut(item: OutputItem, status: ItemStatus): OutputItemOut {
  const { id, text } = item;
  switch (item.type) {
    case 'message':
      return { id, type: 'message', status, role: 'assistant', content: [textOut(text)] };
    case 'reasoning':
      return { id, type: 'reasoning', status, summary: [], content: [reasoningTextOut(text)] };
    case 'function_call':
      return { id, type: 'function_call', status, call_id: item.callId, name: item.name, arguments: text };
  }
}

export function reasoningTextOut(text: string): ReasoningTextOut {
  return { type: 'reasoning_text', text };
}

export function textOut(text: string): OutputTextOut {
  return { type: 'output_text', text, annotations: [], logprobs: [] };
}

/** Of the message at this index among the output items. */
export function messageId(responseId: string, index = 0): string {
  return `msg_${bareId(responseId)}${index === 0 ? '' : `_${index}`}`;
}

export function bareId(responseId: string): string {
  return responseId.slice(responseId.indexOf('_') + 1);
}
