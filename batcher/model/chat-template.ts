/**
 * ChatTemplate: a conversation becomes the token ids of a prompt, by the model's own template.
 * Its guarantee: nothing in the messages or tools of a client becomes a control token (see ContentMark); the prompt has exactly one
 * BOS if the model wants one; a conversation that the template refuses is the client's error, and rendering is bounded.
 */
import { ApiError } from '../../shared/errors.ts';
import type { ChatMessage, Tool } from '../../shared/job.ts';
import { type ReasoningFormat, type ReasoningSyntax, reasoningSyntaxOf } from '../reasoning/reasoning-syntax.ts';
import { formatOfTemplate, syntaxOf, type ToolFormat, type ToolSyntax } from '../tools/tool-format.ts';
import { ContentMark } from './content-mark.ts';
import { defaultTemplate } from './default-template.ts';
import type { PreparedModel } from './prepare.ts';
import { type TemplateMessage, type TemplateSkills, templateMessages } from './template-messages.ts';
import { TemplateRefusal, TemplateRunner } from './template-runner.ts';
import { loadTokenizer, type Tokenizer } from './tokenizer.ts';
import { TOKEN_KINDS, type Vocabulary } from './vocabulary.ts';

export interface RenderOptions {
  /** The prompt ends where the assistant's turn begins. Default true. */
  addGenerationPrompt?: boolean;
  /** It is only counted, so it may be longer than the context. Default false. */
  mayExceedContext?: boolean;
  /** The client's, by their names in the template. */
  values?: Readonly<Record<string, string | number | boolean | null>> | undefined;
}

/** A template may write around each message and in front of all; more than this is no prompt. */
const CHARACTERS_PER_MESSAGE = 4096;
const CHARACTERS_AROUND = 65_536;
/** Repeats of the content that a template may make (some spell a tool's schema twice). */
const CONTENT_REPEATS = 4;

/** What an operator says goes before what the template tells. */
export interface TemplateFormats {
  toolFormat?: ToolFormat | undefined;
  reasoningFormat?: ReasoningFormat | undefined;
}

/** Tokenizer and template of a prepared model. Throws a ModelError when its template cannot be read. */
export async function loadChat(
  { directory, manifest }: PreparedModel,
  formats: TemplateFormats = {},
): Promise<{ tokenizer: Tokenizer; template: ChatTemplate }> {
  const tokenizer = await loadTokenizer(directory);
  return { tokenizer, template: new ChatTemplate(tokenizer, { contextTokens: manifest.shape.contextTokens, ...formats }) };
}

export class ChatTemplate {
  readonly #tokenizer: Tokenizer;
  readonly #runner: TemplateRunner;
  /** Some models bring a second template for requests with tools. */
  readonly #toolRunner: TemplateRunner;
  readonly #mark: ContentMark;
  readonly #skills: TemplateSkills;
  readonly #specials: Readonly<Record<string, string>>;

  readonly #contextTokens: number;
  /** How the model writes calls. */
  readonly toolSyntax: ToolSyntax;
  /** How it sets its reasoning apart; undefined where it does not. */
  readonly reasoningSyntax: ReasoningSyntax | undefined;

  /** Throws a ModelError when the template cannot be read. */
  constructor(tokenizer: Tokenizer, { contextTokens, toolFormat, reasoningFormat }: TemplateFormats & { contextTokens: number }) {
    const { vocabulary } = tokenizer;
    const { chatTemplates, tokens } = vocabulary;
    this.#contextTokens = contextTokens;
    const main = chatTemplates.default ?? defaultTemplate(spelling => tokenizer.idOf(spelling) !== undefined);
    const forTools = chatTemplates.tool_use ?? main;
    this.#tokenizer = tokenizer;
    this.#runner = new TemplateRunner(main, 'default');
    this.#toolRunner = forTools === main ? this.#runner : new TemplateRunner(forTools, 'tool_use');
    this.#mark = new ContentMark(guardedSpellings(vocabulary, `${main}\n${forTools}`));
    const spelling = (id: number | undefined): string => (id === undefined ? '' : (tokens[id] ?? ''));
    // A model whose prompts have no BOS is given it where its template writes it.
    this.#specials = { bos_token: spelling(tokenizer.bosTokenId), eos_token: spelling(vocabulary.eosTokenId) };
    const format = toolFormat ?? formatOfTemplate(`${main}\n${forTools}`);
    const controlTokenId = (mark: string): number | undefined => {
      const id = tokenizer.idOf(mark);
      return id !== undefined && tokenizer.isControl(id) ? id : undefined;
    };
    this.toolSyntax = syntaxOf(format ?? DEFAULT_FORMAT, forTools, controlTokenId);
    this.reasoningSyntax = reasoningSyntaxOf(reasoningFormat, `${main}\n${forTools}`, controlTokenId);
    const skills = this.#probe();
    // Calls in a form that nobody here can read are of no use: the model is told of a known one.
    this.#skills = format === undefined ? { ...skills, tools: false, toolCalls: false } : skills;
  }

  /** The prompt's token ids. Throws ApiError invalid_value, with the template's own words, for what the template refuses. */
  renderChat(messages: readonly ChatMessage[], tools?: readonly Tool[], options: RenderOptions = {}): number[] {
    if (options.mayExceedContext !== true) this.#refuseTooLong(messages, tools);
    const hasTools = tools !== undefined && tools.length > 0;
    const turns = templateMessages(messages, tools, { skills: this.#skills, syntax: this.toolSyntax }).map(turn => ({
      ...(this.#guardStrings(turn) as TemplateMessage),
      role: turn.role,
    }));
    const values = {
      ...(this.#guardStrings(options.values ?? {}) as object),
      messages: turns,
      ...(hasTools && this.#skills.tools ? { tools: this.#guardStrings(tools) } : {}),
      add_generation_prompt: options.addGenerationPrompt ?? true,
      ...this.#specials,
    };
    const maxCharacters =
      CHARACTERS_AROUND +
      CHARACTERS_PER_MESSAGE * turns.length +
      CONTENT_REPEATS * (stringLength(turns) + stringLength([tools, options.values]));
    try {
      const runner = hasTools ? this.#toolRunner : this.#runner;
      return this.#tokenizer.withOneBos(this.#tokenizer.encodeRendered(runner.render(values, maxCharacters)));
    } catch (thrown) {
      if (!(thrown instanceof TemplateRefusal)) throw thrown;
      throw new ApiError('invalid_value', `The model's chat template refuses these messages: ${thrown.message}`, {
        param: 'messages',
        cause: thrown,
      });
    }
  }

  /** Tries small conversations to learn what the template can express. */
  #probe(): TemplateSkills {
    const user: TemplateMessage = { role: 'user', content: 'a question' };
    const answer: TemplateMessage = { role: 'assistant', content: 'an answer' };
    const call: TemplateMessage = {
      role: 'assistant',
      content: '',
      tool_calls: [{ id: 'call00001', type: 'function', function: { name: PROBE, arguments: {} } }],
    };
    const result: TemplateMessage = { role: 'tool', content: PROBE, name: 'f', tool_call_id: 'call00001' };
    const tool = { type: 'function', function: { name: PROBE, description: 'd', parameters: { type: 'object', properties: {} } } };
    const shows = (messages: TemplateMessage[], tools?: object[]): boolean => this.#shows(messages, tools);
    const named = (name: string, id: string) => ({ id, type: 'function' as const, function: { name, arguments: {} } });
    const showsCalls = (...calls: ReturnType<typeof named>[]): boolean => {
      const turns = [user, { ...call, tool_calls: calls }];
      return shows([...turns, ...calls.map(({ id }) => ({ ...result, content: 'a result', tool_call_id: id }))]) || shows(turns);
    };
    const toolCalls = shows([user, call, { ...result, content: 'a result' }]) || shows([user, call]);
    return {
      systemRole: shows([{ role: 'system', content: PROBE }, user]),
      toolCalls,
      toolRole: toolCalls
        ? shows([user, { ...call, tool_calls: [{ ...call.tool_calls![0]!, function: { name: 'f', arguments: {} } }] }, result])
        : shows([user, answer, result]),
      severalCalls: showsCalls(named('f', 'call00001'), named(PROBE, 'call00002')),
      anyCallIds: showsCalls(named(PROBE, 'call_of_any_length')),
      tools: shows([user], [tool]),
    };
  }

  /** Whether the probe's word appears in the prompt. */
  #shows(messages: TemplateMessage[], tools: object[] | undefined): boolean {
    const values = { messages, ...(tools === undefined ? {} : { tools }), add_generation_prompt: true, ...this.#specials };
    const runner = tools === undefined ? this.#runner : this.#toolRunner;
    try {
      return runner.render(values, CHARACTERS_AROUND).includes(PROBE);
    } catch {
      return false;
    }
  }

  /** What cannot fit is refused before any work on it, which grows with its length. */
  #refuseTooLong(messages: readonly ChatMessage[], tools: readonly Tool[] | undefined): void {
    const least = Math.max(
      messages.length,
      Math.ceil(stringBytes([messages.map(message => message.content), tools]) / this.#tokenizer.longestTokenBytes),
    );
    if (least <= this.#contextTokens) return;
    throw new ApiError(
      'context_length_exceeded',
      `This model's maximum context length is ${this.#contextTokens} tokens. However, your messages take at least ${least} tokens.`,
      { param: 'messages' },
    );
  }

  /** The same value with every string in it guarded, keys too. */
  #guardStrings(value: unknown): unknown {
    if (typeof value === 'string') return this.#mark.guard(value);
    if (Array.isArray(value)) return value.map(element => this.#guardStrings(element));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [this.#mark.guard(key), this.#guardStrings(inner)]));
  }
}

/** Where a template does not tell. */
const DEFAULT_FORMAT: ToolFormat = 'hermes';

/** A word that no template has. */
const PROBE = 'zqxprobe';

/**
 * All control tokens; and user-defined ones that the template itself writes, which some converters use for the markers of turns.
 */
function guardedSpellings({ tokens, kinds }: Vocabulary, templates: string): string[] {
  return tokens.filter((text, id) => {
    const kind = kinds[id];
    if (kind === TOKEN_KINDS.control || kind === TOKEN_KINDS.unknown) return true;
    return kind === TOKEN_KINDS.userDefined && /\S/.test(text) && templates.includes(text);
  });
}

/** UTF-8 bytes of all strings in a value. */
function stringBytes(value: unknown): number {
  if (typeof value === 'string') return Buffer.byteLength(value);
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, inner: unknown) => sum + stringBytes(inner), 0);
}

/** Characters of a value as JSON, roughly. */
function stringLength(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (Array.isArray(value)) return value.reduce((sum: number, element: unknown) => sum + stringLength(element), 0);
  if (typeof value !== 'object' || value === null) return 16;
  return Object.entries(value).reduce((sum, [key, inner]) => sum + key.length + 16 + stringLength(inner), 0);
}
