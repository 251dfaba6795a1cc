/**
 * MessageBlocks: the answer as Anthropic's blocks, told by steps: each block begins once, grows, and is stopped before the next one begins. Reasoning
 * and a call are blocks of their own; text before, between and behind calls is one each time. A stream tells the steps, a whole message what they come to.
 */
import type { DeltaEvent } from '../../shared/token-event.ts';
import { type AnswerPart, answerParts } from '../answer-parts.ts';
import { callId } from '../call-id.ts';
import { partialObject } from './partial-object.ts';

export interface TextBlockOut {
  type: 'text';
  text: string;
  citations: null;
}

export interface ToolUseBlockOut {
  type: 'tool_use';
  /** By which its result names it. */
  id: string;
  name: string;
  input: Record<string, unknown>;
  /** The model itself. */
  caller: { type: 'direct' };
}

export interface ThinkingBlockOut {
  type: 'thinking';
  thinking: string;
  /** Nothing is signed here; it may come back as it is. */
  signature: string;
}

export type BlockOut = TextBlockOut | ToolUseBlockOut | ThinkingBlockOut;

export type BlockStep =
  | { kind: 'start'; index: number; block: BlockOut }
  | { kind: 'text' | 'thinking'; index: number; text: string }
  | { kind: 'input'; index: number; json: string }
  | { kind: 'stop'; index: number };

export class MessageBlocks {
  readonly #messageId: string;
  #count = 0;
  #open: BlockOut['type'] | undefined;

  constructor(messageId: string) {
    this.#messageId = messageId;
  }

  take(delta: DeltaEvent): BlockStep[] {
    return [...answerParts(delta)].flatMap(part => this.#take(part));
  }

  /** No more comes. */
  end(): BlockStep[] {
    if (this.#open === undefined) return [];
    this.#open = undefined;
    return [{ kind: 'stop', index: this.#count - 1 }];
  }

  #take(part: AnswerPart): BlockStep[] {
    switch (part.kind) {
      case 'reasoning': {
        const steps = this.#open === 'thinking' ? [] : this.#begin({ type: 'thinking', thinking: '', signature: '' });
        return [...steps, { kind: 'thinking', index: this.#count - 1, text: part.text }];
      }
      case 'text': {
        const steps = this.#open === 'text' ? [] : this.#begin({ type: 'text', text: '', citations: null });
        return [...steps, { kind: 'text', index: this.#count - 1, text: part.text }];
      }
      case 'call': {
        const id = callId('toolu_', this.#messageId, { choice: 0, call: part.index });
        return this.#begin({ type: 'tool_use', id, name: part.name, input: {}, caller: { type: 'direct' } });
      }
      case 'arguments':
        return [{ kind: 'input', index: this.#count - 1, json: part.piece }];
    }
  }

  #begin(block: BlockOut): BlockStep[] {
    const steps = this.end();
    this.#open = block.type;
    return [...steps, { kind: 'start', index: this.#count++, block }];
  }
}

/** The blocks that steps come to. */
export class GatheredBlocks {
  readonly #blocks: { block: BlockOut; pieces: string[] }[] = [];

  take(steps: readonly BlockStep[]): void {
    for (const step of steps) {
      if (step.kind === 'start') this.#blocks.push({ block: step.block, pieces: [] });
      else if (step.kind === 'text' || step.kind === 'thinking') this.#blocks[step.index]!.pieces.push(step.text);
      else if (step.kind === 'input') this.#blocks[step.index]!.pieces.push(step.json);
    }
  }

  get content(): BlockOut[] {
    return this.#blocks.map(({ block, pieces }) => {
      const text = pieces.join('');
      if (block.type === 'thinking') return { ...block, thinking: text };
      return block.type === 'text' ? { ...block, text } : { ...block, input: partialObject(text) };
    });
  }
}
