/**
 * ChoiceText: the text of one choice as its tokens come, each token's log-probabilities beside its text. Lets out whole characters only and nothing
 * that may become part of a stop string; streamed or not, and however the tokens are grouped, the joined text and entries are the same.
 *
 * A token's entry comes out when all of its text is certain. Where a stop string cuts a token, the entry stays if a part of the token's text
 * does (the entry names the whole token, as the model gave it); tokens wholly inside or behind the stop string have none.
 *
 * Depends on the tokens alone: a sequence is taken up elsewhere by pushing its tokens again.
 */
import type { FinishReason, TokenLogprob } from '../../shared/token-event.ts';
import type { SampledToken } from '../sampling/sampler.ts';
import { IncrementalDetokenizer, type TokenBytes } from './incremental-detokenizer.ts';
import { logprobEntry } from './logprob-entry.ts';
import { StopMatcher } from './stop-matcher.ts';

export interface CertainText {
  text: string;
  /** A stop string was found: `text` ends right before it, the choice is over, and further tokens change nothing. */
  stopped: boolean;
  /** Of the tokens whose text is now certain and whose log-probabilities were given. */
  logprobs: TokenLogprob[];
}

export interface ChoiceTextSource {
  tokenBytes: TokenBytes;
  /** The same with control tokens spelled, for the names of tokens in log-probabilities. */
  spelled?: TokenBytes | undefined;
  stop?: readonly string[] | undefined;
  /** In the text of this many first tokens no stop string is looked for. */
  minTokens?: number | undefined;
  /** Knows where it is no text, but reasoning or a call of a function: no stop string is looked for there. */
  parts?: AnswerParts | undefined;
}

export interface AnswerParts {
  push(text: string): unknown;
  readonly isApart: boolean;
  /** The last character is text, though what came before it was not. */
  readonly isTextAgain: boolean;
  /** Characters at the end with which something else than text may be about to begin. */
  readonly openingLength: number;
}

/** A token that is not let out whole yet. */
interface HeldToken {
  entry: TokenLogprob | undefined;
  /** Where its text starts and ends in the choice's text, in UTF-16 units; the end is undefined within an unfinished character. */
  start: number;
  end: number | undefined;
}

export class ChoiceText {
  readonly #names: { tokenBytes: TokenBytes; spelled: TokenBytes | undefined };
  readonly #detokenizer: IncrementalDetokenizer;
  readonly #stop: readonly string[];
  #matcher: StopMatcher;
  readonly #minTokens: number;
  readonly #parts: AnswerParts | undefined;
  /** May be the beginning of something else than text, or of a stop string. */
  #opening = '';
  readonly #held: HeldToken[] = [];
  #tokenCount = 0;
  /** UTF-16 units that the detokenizer has given, and that were let out. */
  #decodedLength = 0;
  #certainLength = 0;
  #isEnded = false;

  constructor({ tokenBytes, spelled, stop = [], minTokens, parts }: ChoiceTextSource) {
    this.#names = { tokenBytes, spelled };
    this.#detokenizer = new IncrementalDetokenizer(tokenBytes);
    this.#stop = stop;
    this.#matcher = new StopMatcher(stop);
    this.#minTokens = minTokens ?? 0;
    this.#parts = stop.length === 0 ? undefined : parts;
  }

  /** Tokens at the end that are not let out whole. A sequence taken up elsewhere may drop them and sample them again: no client has seen them. */
  get heldTokenCount(): number {
    return this.#held.length;
  }

  /** The stop string that ended it, where one did. */
  get stopText(): string | undefined {
    return this.#matcher.found;
  }

  /** Text that these tokens make certain. Do not push end tokens of the model: they are not text. */
  push(tokens: readonly SampledToken[]): CertainText {
    let text = '';
    for (const token of tokens) {
      if (this.#isEnded) break;
      text += this.#pushOne(token);
    }
    return { text, stopped: this.#matcher.isStopped, logprobs: this.#release() };
  }

  /**
   * The choice is over for this reason: the rest of its text. A character that the length limit cut in two is left out (its bytes stay in the
   * log-probabilities); one that the model itself left unfinished becomes U+FFFD.
   */
  end(reason: FinishReason): CertainText {
    let text = '';
    if (!this.#isEnded) {
      const flushed = reason === 'length' ? '' : this.#detokenizer.flush();
      this.#decodedLength += flushed.length;
      text = this.#letOut(flushed);
      if (!this.#matcher.isStopped) {
        const opening = this.#besidesStops(this.#opening);
        const rest = opening + (this.#matcher.isStopped ? '' : this.#matcher.end());
        text += rest;
        this.#certainLength += rest.length;
      }
      this.#finish();
    }
    return { text, stopped: this.#matcher.isStopped, logprobs: this.#release() };
  }

  #pushOne({ tokenId, logprob }: SampledToken): string {
    this.#tokenCount++;
    const start = this.#decodedLength;
    const { joined, carried } = this.#detokenizer.pieces(tokenId);
    if (carried !== undefined) for (const held of this.#held) held.end ??= start + carried;
    this.#decodedLength += joined.length;
    this.#held.push({
      entry: logprob && logprobEntry(tokenId, logprob, this.#names),
      start,
      end: this.#detokenizer.isPending ? undefined : this.#decodedLength,
    });
    const text = this.#letOut(joined);
    if (this.#matcher.isStopped) this.#finish();
    return text;
  }

  #letOut(decoded: string): string {
    const text =
      this.#parts === undefined ? this.#besidesStops(decoded) : Array.from(decoded, character => this.#besidesParts(character)).join('');
    this.#certainLength += text.length;
    return text;
  }

  #besidesStops(decoded: string): string {
    return this.#tokenCount <= this.#minTokens ? decoded : this.#matcher.push(decoded).text;
  }

  #besidesParts(character: string): string {
    const parts = this.#parts!;
    const wasApart = parts.isApart;
    if (this.#matcher.isStopped) return '';
    parts.push(character);
    const text = this.#opening + character;
    if ((wasApart && !parts.isTextAgain) || parts.isApart) {
      // What a call has cut off becomes no stop string.
      const held = this.#matcher.end();
      if (held !== '') this.#matcher = new StopMatcher(this.#stop);
      this.#opening = '';
      return held + text;
    }
    const free = text.length - Math.min(text.length, parts.openingLength);
    this.#opening = text.slice(free);
    return this.#besidesStops(text.slice(0, free));
  }

  /** No more text comes. Behind a stop string's start only tokens stay that start before it, or whose text (if any) was certain already. */
  #finish(): void {
    this.#isEnded = true;
    const end = this.#certainLength;
    const stays = (held: HeldToken): boolean => held.start < end || (held.end ?? Infinity) <= end;
    const kept = this.#matcher.isStopped ? this.#held.filter(stays) : [...this.#held];
    this.#held.splice(0, this.#held.length, ...kept.map(held => ({ ...held, end })));
  }

  #release(): TokenLogprob[] {
    let count = 0;
    while (count < this.#held.length && (this.#held[count]!.end ?? Infinity) <= this.#certainLength) count++;
    return this.#held.splice(0, count).flatMap(({ entry }) => entry ?? []);
  }
}
