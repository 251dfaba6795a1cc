/** AnswerView: one answer on the page. Text goes in as text, never as markup. */
import { Answer, type AnswerFinish, type AnswerRecord } from './answer.ts';
import { duration } from './queue-note.ts';
import { RateMeter } from './rate-meter.ts';

export interface AnswerViewOptions {
  /** Of an earlier page; undefined for a new answer. */
  record?: AnswerRecord | undefined;
  /** The key of this moment; empty when there is none. */
  key(): string;
  /** Something of it has changed that is worth keeping. */
  onChange(): void;
  onTokens(count: number): void;
}

export class AnswerView {
  readonly element: HTMLElement;
  readonly answer: Answer;
  readonly #meter = new RateMeter();
  readonly #text = document.createTextNode('');
  readonly #reasoning = document.createElement('details');
  readonly #thoughts = document.createTextNode('');
  readonly #note = document.createElement('p');
  readonly #figures = document.createElement('p');
  readonly #stop = button('Stop');
  readonly #resume = button('Resume');

  constructor({ record, key, onChange, onTokens }: AnswerViewOptions) {
    const body = document.createElement('div');
    body.className = 'text';
    body.append(this.#text);
    const thoughts = document.createElement('div');
    thoughts.append(this.#thoughts);
    const summary = document.createElement('summary');
    summary.textContent = 'Reasoning';
    this.#reasoning.className = 'reasoning';
    this.#reasoning.append(summary, thoughts);
    this.#note.className = 'note';
    this.#note.setAttribute('role', 'status');
    this.#figures.className = 'figures';
    const foot = document.createElement('footer');
    foot.append(this.#figures, this.#stop, this.#resume);
    this.element = document.createElement('article');
    this.element.className = 'answer';
    this.element.setAttribute('aria-label', 'Answer');
    this.element.append(this.#reasoning, body, this.#note, foot);

    const changed = () => {
      this.render();
      onChange();
    };
    const tokens = (count: number) => {
      this.#meter.add(count, performance.now());
      onTokens(count);
    };
    this.answer = new Answer({ changed, tokens }, record);
    this.#stop.addEventListener('click', () => void this.answer.stop(key()));
    this.#resume.addEventListener('click', () => void this.answer.resume());
    this.render();
  }

  /** Also from time to time while it is open: a rate changes when nothing comes. */
  render(): void {
    const { record, text, reasoning, isOpen, canResume } = this.answer;
    grow(this.#text, text);
    grow(this.#thoughts, reasoning);
    this.#reasoning.hidden = reasoning === '';
    setText(this.#note, record.note);
    setText(this.#figures, this.#figureText(record, isOpen));
    this.#stop.hidden = !isOpen;
    this.#resume.hidden = !canResume;
    this.element.dataset.state = record.state;
    // Else a screen reader would say every token.
    this.element.setAttribute('aria-busy', String(isOpen));
  }

  #figureText(record: AnswerRecord, isOpen: boolean): string {
    const rate = isOpen ? this.#meter.rate(performance.now()) : undefined;
    return [
      rate === undefined ? undefined : `${rate.toFixed(1)} tokens/s, this answer`,
      record.tokenCount === 0 ? undefined : `${record.tokenCount} tokens`,
      record.firstTextMs === undefined ? undefined : `first text after ${duration(record.firstTextMs)}`,
      ...(record.finish === undefined ? [] : finishFigures(record.finish)),
    ]
      .filter(figure => figure !== undefined)
      .join(' · ');
  }
}

function finishFigures({ reason, promptTokens, cachedTokens, tokensPerSecond }: AnswerFinish): string[] {
  const ends: Readonly<Record<string, string>> = { stop: 'ended by itself', length: 'cut off by the length limit' };
  return [
    ...(tokensPerSecond === undefined ? [] : [`${tokensPerSecond.toFixed(1)} tokens/s, this answer in the batcher`]),
    `prompt ${promptTokens} tokens${cachedTokens > 0 ? ` (${cachedTokens} cached)` : ''}`,
    ends[reason] ?? reason,
  ];
}

function button(label: string): HTMLButtonElement {
  const element = document.createElement('button');
  element.type = 'button';
  element.textContent = label;
  return element;
}

/** What is there already stays, selected as it may be. */
function grow(node: Text, text: string): void {
  if (text.startsWith(node.data)) node.appendData(text.slice(node.length));
  else node.data = text;
}

/** Not when it is the same: a screen reader says what is set. */
function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
