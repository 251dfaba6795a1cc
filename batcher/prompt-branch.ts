/**
 * PromptBranch: one prompt of a generation and the choices that share its prefill; and BranchMaker, which makes them for one model.
 * A request of several prompts gives each what it would get alone.
 */
import { ApiError } from '../shared/errors.ts';
import type { Job, Prompt } from '../shared/job.ts';
import { Choice } from './choice.ts';
import type { Tokenizer } from './model/tokenizer.ts';
import { PromptEcho } from './prompt-echo.ts';
import { answerParserOf } from './reasoning/answer-parser.ts';
import { ReasoningBudget } from './reasoning/reasoning-budget.ts';
import type { Reasoning } from './reasoning/reasoning-syntax.ts';
import { PromptScorer } from './sampling/prompt-scorer.ts';
import { Sampler } from './sampling/sampler.ts';
import type { SamplingScratch } from './sampling/sampling-scratch.ts';
import type { CompiledGrammar } from './structured/compiled-grammar.ts';
import { GrammarMatcher } from './structured/grammar-matcher.ts';
import { ChoiceText } from './text/choice-text.ts';
import { promptTokenBytes } from './text/prompt-text.ts';
import { callsOf } from './tools/job-calls.ts';
import type { ToolSyntax } from './tools/tool-format.ts';

export class PromptBranch {
  readonly index: number;
  /** Its name in the scheduler. */
  readonly scheduleId: string;
  readonly prompt: Prompt;
  readonly promptTokenIds: readonly number[];
  readonly choices: readonly Choice[];
  /** Absent where the prompt is not told back. */
  readonly echo: PromptEcho | undefined;
  /** Prompt tokens that came from the prefix store. */
  cachedTokens = 0;

  constructor(parts: Pick<PromptBranch, 'index' | 'scheduleId' | 'prompt' | 'promptTokenIds' | 'choices' | 'echo'>) {
    this.index = parts.index;
    this.scheduleId = parts.scheduleId;
    this.prompt = parts.prompt;
    this.promptTokenIds = parts.promptTokenIds;
    this.choices = parts.choices;
    this.echo = parts.echo;
  }

  /** Its prompt's logits are wanted: they have not all been told of. */
  get scoresPrompt(): boolean {
    return this.echo?.isScored === true && !this.echo.isTold;
  }
}

/** What branches need of a tokenizer. */
export type TokenBytesSource = Pick<Tokenizer, 'tokenBytes' | 'endTokenIds'>;

export interface EncodedPrompt {
  prompt: Prompt;
  tokenIds: readonly number[];
  /** Of the answer. */
  reasoning?: Reasoning | undefined;
}

export class BranchMaker {
  readonly #tokenizer: TokenBytesSource;
  readonly #scratch: SamplingScratch;
  readonly #scorer: PromptScorer;
  readonly #endTokenIds: ReadonlySet<number>;
  readonly #toolSyntax: ToolSyntax;
  readonly #closerTokenIds: readonly number[];

  /** `closerTokenIds` spell the mark that ends reasoning, of a model that reasons. */
  constructor(
    tokenizer: TokenBytesSource,
    { scratch, toolSyntax, closerTokenIds = [] }: { scratch: SamplingScratch; toolSyntax: ToolSyntax; closerTokenIds?: readonly number[] },
  ) {
    this.#tokenizer = tokenizer;
    this.#toolSyntax = toolSyntax;
    this.#closerTokenIds = closerTokenIds;
    this.#scratch = scratch;
    this.#scorer = new PromptScorer(scratch);
    this.#endTokenIds = new Set(tokenizer.endTokenIds);
  }

  /** `grammar` is that of the answer's structure, `contextTokens` what prompt and answer may have together. Throws ApiError for sampling parameters that this model cannot follow. */
  branchesOf(
    job: Job,
    scheduleId: string,
    {
      prompts,
      grammar,
      contextTokens,
    }: { prompts: readonly EncodedPrompt[]; grammar?: CompiledGrammar | undefined; contextTokens: number },
  ): PromptBranch[] {
    return prompts.map(({ prompt, tokenIds, reasoning }, index) => {
      const branchId = index === 0 ? scheduleId : `${scheduleId}/${index}`;
      return new PromptBranch({
        index,
        scheduleId: branchId,
        prompt,
        promptTokenIds: tokenIds,
        choices: this.#choicesOf(job, { branchId, tokenIds, index, grammar, reasoning, contextTokens }),
        echo: job.echo === undefined ? undefined : this.#echoOf(job, { prompt, tokenIds }),
      });
    });
  }

  #choicesOf(
    job: Job,
    of: Pick<EncodedPrompt, 'tokenIds' | 'reasoning'> & {
      branchId: string;
      index: number;
      grammar: CompiledGrammar | undefined;
      contextTokens: number;
    },
  ): Choice[] {
    const { sampling, stopping } = job;
    // Equal prompts of one request are to have different answers, unless it is told from what they are drawn.
    const seed = sampling.seed ?? seedOf(of.index === 0 ? job.id : `${job.id}/${of.index}`);
    const calls = callsOf(job, this.#toolSyntax);
    const { reasoning } = of;
    // The marks of reasoning and of calls are text to whoever looks for them.
    const markIds = new Set([calls?.openerTokenId, reasoning?.openerTokenId, reasoning?.closerTokenId]);
    const tokenBytes = (id: number) => this.#tokenizer.tokenBytes(id, markIds.has(id) ? 'spelled' : 'hidden');
    const { maxReasoningTokens } = stopping;
    const closerTokenIds = this.#closerTokenIds;
    return Array.from({ length: job.choiceCount }, (_, choice) => {
      return new Choice({
        sequenceId: `${of.branchId}#${choice}`,
        index: of.index * job.choiceCount + choice,
        sampler: new Sampler(
          { sampling, stopping, endTokenIds: [...this.#endTokenIds], promptTokenIds: of.tokenIds, seed, choice },
          this.#scratch,
        ),
        matcher: of.grammar && new GrammarMatcher(of.grammar),
        mayWindUp: calls === undefined,
        budget:
          reasoning && maxReasoningTokens && closerTokenIds.length > 0
            ? new ReasoningBudget({ reasoning, maxTokens: maxReasoningTokens, closerTokenIds, tokenBytes })
            : undefined,
        text: new ChoiceText({
          tokenBytes,
          spelled: id => this.#tokenizer.tokenBytes(id, 'spelled'),
          // Of calls alone nothing is text.
          stop: calls?.isForced ? [] : stopping.stop,
          minTokens: stopping.minTokens,
          parts: answerParserOf({ reasoning, calls }),
        }),
        parser: answerParserOf({ reasoning, calls }),
        endTokenIds: stopping.ignoreEos ? NO_TOKENS : this.#endTokenIds,
        maxTokens: Math.min(stopping.maxTokens ?? Number.POSITIVE_INFINITY, of.contextTokens - of.tokenIds.length),
        reportsLogprobs: sampling.topLogprobs !== undefined,
      });
    });
  }

  #echoOf(job: Job, { prompt, tokenIds }: EncodedPrompt): PromptEcho {
    if (job.echo === 'scored' && job.sampling.topLogprobs === undefined) {
      throw new ApiError('generation_failed', 'A prompt is to be scored without log-probabilities.');
    }
    const tokenBytes = (id: number) => this.#tokenizer.tokenBytes(id, 'spelled');
    return new PromptEcho({
      tokenIds,
      pieces: promptTokenBytes(tokenIds, tokenBytes, prompt.kind === 'text' ? prompt.text : undefined),
      scoring: job.echo === 'scored' ? { scorer: this.#scorer, topCount: job.sampling.topLogprobs ?? 0, tokenBytes } : undefined,
    });
  }
}

const NO_TOKENS: ReadonlySet<number> = new Set();

/** A seed for a request that gives none: the same at each attempt, so that a job goes on elsewhere as it would have here. */
function seedOf(jobId: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < jobId.length; i++) hash = Math.imul(hash ^ jobId.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
