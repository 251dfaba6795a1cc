/**
 * Choice: one answer of a generation: its sampler, its text, and why it ended. Sampling happens between two steps; text and log
 * probabilities are made later, while the next step runs, so a stop string is noticed one token late and that token is dropped.
 * Its state depends on its tokens alone: another batcher takes it up by replaying them.
 */
import { type CallDelta, type FinishReason, joinedCalls, type TokenLogprob } from '../shared/token-event.ts';
import type { AnswerParser, ParsedAnswer } from './reasoning/answer-parser.ts';
import type { ReasoningBudget } from './reasoning/reasoning-budget.ts';
import type { SampledToken, Sampler } from './sampling/sampler.ts';
import { maskOf, type TokenMask } from './sampling/token-mask.ts';
import type { GrammarMatcher } from './structured/grammar-matcher.ts';
import type { ChoiceText } from './text/choice-text.ts';

export interface ChoiceDelta {
  tokenIds: number[];
  text: string;
  reasoning?: string;
  calls?: CallDelta[];
  logprobs?: TokenLogprob[];
  windsUp?: true;
  finishReason?: FinishReason;
  stopText?: string;
}

export interface ChoiceOptions {
  sequenceId: string;
  index: number;
  sampler: Sampler;
  /** Of an answer that has a structure. */
  matcher?: GrammarMatcher | undefined;
  /** Its structure is brought to an end before its room runs out. Not that of calls: half a call that looks whole would be run. */
  mayWindUp?: boolean;
  /** Of an answer whose reasoning is bounded. */
  budget?: ReasoningBudget | undefined;
  text: ChoiceText;
  /** Of an answer that may reason first, or call functions. */
  parser?: AnswerParser | undefined;
  endTokenIds: ReadonlySet<number>;
  /** What the request asks for at most, and the context has room for. 0: nothing is sampled. */
  maxTokens: number;
  reportsLogprobs: boolean;
}

export class Choice {
  readonly sequenceId: string;
  readonly index: number;
  readonly #options: ChoiceOptions;
  /** Sampled so far, end token included. */
  readonly #tokenIds: number[] = [];
  /** Why sampling ended; what was sampled may not be told yet. */
  #samplingEnd: FinishReason | undefined;
  #finishReason: FinishReason | undefined;
  /** Its structure was brought to an end before the room for it ran out, so where it ends the model did not choose. */
  #isWoundUp = false;
  #isWindingUpTold = false;
  #completionTokens = 0;
  #reasoningTokens = 0;
  #sampledAt: number | undefined;

  constructor(options: ChoiceOptions) {
    this.sequenceId = options.sequenceId;
    this.index = options.index;
    this.#options = options;
  }

  get generatedTokenIds(): readonly number[] {
    return this.#tokenIds;
  }

  /** Its prompt is computed and nothing sampled. */
  get isEmpty(): boolean {
    return this.#options.maxTokens === 0;
  }

  /** No more tokens are to be sampled. */
  get isEnded(): boolean {
    return this.#samplingEnd !== undefined || this.#finishReason !== undefined;
  }

  /** Set once the last of its text was told. */
  get finishReason(): FinishReason | undefined {
    return this.#finishReason;
  }

  /** Tokens of the answer, the model's end token not counted. */
  get completionTokens(): number {
    return this.#completionTokens;
  }

  /** Of them those of its reasoning; undefined where it cannot have any. */
  get reasoningTokens(): number | undefined {
    return this.#options.parser?.mayReason ? this.#reasoningTokens : undefined;
  }

  /**
   * The token for `position`, from the model's logits of one row. One behind which a structure could not be completed any more in the room that is
   * left is not taken: then one is drawn from those behind which it can.
   */
  sample(row: Float32Array, position: number): SampledToken {
    const { sampler, matcher, budget } = this.#options;
    const forced = budget?.forcedTokenId;
    let token = sampler.sample(row, position, forced === undefined ? matcher?.mask() : maskOf(forced, row.length));
    const closing = matcher && this.#closingMask(matcher, token.tokenId);
    if (closing !== undefined) {
      this.#isWoundUp = true;
      token = sampler.sample(row, position, closing);
    }
    this.#accept(token.tokenId);
    return token;
  }

  /** Makes what the next tokens will be chosen by, while there is time; these drafts may be among them. */
  prepare(drafts: readonly number[]): void {
    if (!this.isEnded) this.#options.matcher?.prepare(drafts);
  }

  /** Of these drafts those that may come: the others would be refused anyhow. */
  fittingDrafts(drafts: readonly number[]): readonly number[] {
    const { matcher } = this.#options;
    return matcher === undefined ? drafts : drafts.slice(0, matcher.fitting(drafts));
  }

  /** Time between the last token and the one before; undefined for the first. Asked once a token. */
  sinceLastTokenMs(): number | undefined {
    const before = this.#sampledAt;
    this.#sampledAt = performance.now();
    return before === undefined ? undefined : this.#sampledAt - before;
  }

  /** Nothing more is sampled: context or memory has no room for more, or nothing was to be. */
  endByLength(): void {
    this.#samplingEnd ??= 'length';
  }

  /** The certain text of tokens that were sampled. */
  tell(tokens: readonly SampledToken[]): ChoiceDelta {
    const { endTokenIds, text, reportsLogprobs } = this.#options;
    const spoken = this.#samplingEnd === undefined ? tokens : tokens.filter(token => !endTokenIds.has(token.tokenId));
    this.#completionTokens += spoken.length;
    const logprobs: TokenLogprob[] = [];
    const parts: ParsedAnswer[] = [];
    let isStopped = false;
    for (const group of this.#groups(spoken)) {
      const pushed = text.push(group);
      logprobs.push(...pushed.logprobs);
      parts.push(this.#parsed(pushed.text, group.length));
      isStopped = pushed.stopped;
    }
    if (isStopped) this.#finishReason = 'stop';
    else if (this.#samplingEnd !== undefined && this.#told(tokens)) {
      const rest = text.end(this.#samplingEnd);
      parts.push(this.#parsed(rest.text, 0));
      logprobs.push(...rest.logprobs);
      this.#finishReason = rest.stopped ? 'stop' : this.#samplingEnd;
    }
    if (this.#finishReason !== undefined) parts.push(this.#rest(this.#finishReason));
    const reasoning = parts.map(part => part.reasoning).join('');
    const calls = joinedCalls(...parts.map(part => part.calls));
    const startsWindingUp = this.#isWoundUp && !this.#isWindingUpTold;
    this.#isWindingUpTold = this.#isWoundUp;
    return {
      tokenIds: tokens.map(token => token.tokenId),
      text: parts.map(part => part.text).join(''),
      ...(reasoning !== '' && { reasoning }),
      ...(calls.length > 0 && { calls }),
      ...(reportsLogprobs && { logprobs }),
      ...(startsWindingUp && { windsUp: true as const }),
      ...(this.#finishReason !== undefined && { finishReason: this.#finishReason }),
      ...(text.stopText !== undefined && { stopText: text.stopText }),
    };
  }

  /** Takes over what an earlier attempt told. */
  replay({ tokenIds, finishReason, windsUp }: Pick<ChoiceDelta, 'tokenIds' | 'finishReason' | 'windsUp'>): void {
    if (windsUp) this.#isWoundUp = true;
    for (const tokenId of tokenIds) this.#accept(tokenId);
    this.tell(tokenIds.map(tokenId => ({ tokenId })));
    if (finishReason !== undefined) this.#finishReason = finishReason;
  }

  #accept(tokenId: number): void {
    const { sampler, matcher, budget, endTokenIds } = this.#options;
    sampler.accept(tokenId);
    matcher?.accept(tokenId);
    budget?.accept(tokenId);
    this.#tokenIds.push(tokenId);
    // A structure that is complete needs no end token.
    if (endTokenIds.has(tokenId) || matcher?.isComplete) this.#samplingEnd = this.#isWoundUp ? 'length' : 'stop';
    else if (this.#tokenIds.length >= this.#options.maxTokens) this.#samplingEnd = 'length';
  }

  /** Where the token leaves too little room to complete the structure: the tokens that leave enough. Nothing where that is lost already. */
  #closingMask(matcher: GrammarMatcher, tokenId: number): TokenMask | undefined {
    if (!this.#options.mayWindUp) return undefined;
    const left = this.#options.maxTokens - this.#tokenIds.length;
    if (matcher.tokensToEndAfter(tokenId) < left || matcher.tokensToEnd > left) return undefined;
    return matcher.closingMask(left - 1);
  }

  /** Tokens of reasoning are counted one by one. */
  #groups(tokens: readonly SampledToken[]): readonly (readonly SampledToken[])[] {
    return this.#options.parser?.mayReason ? tokens.map(token => [token]) : [tokens];
  }

  /** What was said by so many tokens. */
  #parsed(said: string, tokenCount: number): ParsedAnswer {
    const { parser } = this.#options;
    if (parser === undefined) return { reasoning: '', text: said, calls: [] };
    const wasReasoning = parser.isReasoning;
    const parsed = parser.push(said);
    if (wasReasoning || parser.isReasoning) this.#reasoningTokens += tokenCount;
    return parsed;
  }

  /** What was held back when it ended; what ends with calls ends for them. */
  #rest(reason: FinishReason): ParsedAnswer {
    const { parser } = this.#options;
    if (parser === undefined) return { reasoning: '', text: '', calls: [] };
    const rest = parser.end();
    if (reason === 'stop' && parser.callCount > 0) this.#finishReason = 'tool_calls';
    return rest;
  }

  /** Whether these are the last ones sampled. */
  #told(tokens: readonly SampledToken[]): boolean {
    return tokens.length === 0 || tokens.at(-1)!.tokenId === this.#tokenIds.at(-1);
  }
}
