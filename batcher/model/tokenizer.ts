/**
 * Tokenizer: text to token ids and token ids to bytes, for one vocabulary.
 * It decides which tokens a text may contain: control tokens are recognised only where the caller says that the text is a prompt,
 * never in a client's content.
 */
import { bytesOfToken } from './byte-alphabet.ts';
import { alternation, unguard } from './content-mark.ts';
import { loadVocabulary } from './prepare.ts';
import { TOKEN_KINDS, type Vocabulary } from './vocabulary.ts';
import { createWordEncoder, type WordEncoder } from './word-encoder.ts';

/** SentencePiece writes a space as this. */
const SPACE = '\u2581';
const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/;

/** The tokenizer of a prepared model's folder. */
export async function loadTokenizer(directory: string): Promise<Tokenizer> {
  return new Tokenizer(await loadVocabulary(directory));
}

export class Tokenizer {
  readonly vocabSize: number;
  /** Tokens that end a generation. */
  readonly endTokenIds: readonly number[];
  readonly bosTokenId: number | undefined;
  /** A prompt starts with the BOS token. */
  readonly addBos: boolean;
  readonly vocabulary: Vocabulary;
  readonly #words: WordEncoder;
  readonly #ids: ReadonlyMap<string, number>;
  /** Control and user-defined tokens: whole wherever a prompt spells them. */
  readonly #inPrompts: RegExp | undefined;
  /** User-defined tokens: whole in plain text too, as the model was trained. */
  readonly #inContent: RegExp | undefined;
  readonly #bytes: (Uint8Array | undefined)[];
  #longestTokenBytes: number | undefined;

  constructor(vocabulary: Vocabulary) {
    const { tokens, kinds } = vocabulary;
    this.vocabulary = vocabulary;
    this.vocabSize = tokens.length;
    this.endTokenIds = vocabulary.endTokenIds;
    this.bosTokenId = vocabulary.bosTokenId;
    this.addBos = vocabulary.addBos;
    this.#words = createWordEncoder(vocabulary);
    const whole = tokens.flatMap((text, id) => (isWhole(kinds[id]!) ? [{ text, id }] : []));
    this.#ids = new Map(whole.map(({ text, id }) => [text, id]));
    this.#inPrompts = alternation(whole.map(({ text }) => text));
    this.#inContent = alternation(whole.filter(({ id }) => kinds[id] === TOKEN_KINDS.userDefined).map(({ text }) => text));
    this.#bytes = new Array(tokens.length);
  }

  /** Plain content: a control token spelled in it is text like any other. */
  encodeText(text: string): number[] {
    const ids: number[] = [];
    this.#encodePieces(text, { whole: this.#inContent, plain: piece => piece }, ids);
    return ids;
  }

  /** What a chat template rendered, with guarded contents (see ContentMark); as it is: no BOS is added. */
  encodeRendered(text: string): number[] {
    const ids: number[] = [];
    this.#encodePieces(text, { whole: this.#inPrompts, plain: unguard }, ids);
    return ids;
  }

  /**
   * The prompt of a completion, written by the client as the model is to see it: control tokens are recognised, and there is exactly
   * one BOS in front if the model wants one, unless it is to be as it is written.
   */
  encodePrompt(text: string, { addBos = true } = {}): number[] {
    const ids: number[] = [];
    this.#encodePieces(text, { whole: this.#inPrompts, plain: piece => piece }, ids);
    return addBos ? this.withOneBos(ids) : ids;
  }

  /** Exactly one BOS in front, for a model that wants one; else the ids as they are. */
  withOneBos(ids: number[]): number[] {
    const { bosTokenId, addBos } = this;
    if (!addBos || bosTokenId === undefined) return ids;
    const first = ids.findIndex(id => id !== bosTokenId);
    return [bosTokenId, ...ids.slice(first === -1 ? ids.length : first)];
  }

  /** UTF-8 that the token stands for, maybe part of a character. Control tokens stand for nothing, or for their spelling where asked. */
  tokenBytes(id: number, controlTokens: 'hidden' | 'spelled' = 'hidden'): Uint8Array {
    if (this.isControl(id) && controlTokens === 'hidden') return NO_BYTES;
    let bytes = this.#bytes[id];
    if (bytes === undefined) {
      bytes = this.#decode(id);
      if (id < this.#bytes.length) this.#bytes[id] = bytes;
    }
    return bytes;
  }

  /** For people and log probabilities: the token's text, U+FFFD for parts of characters, the spelling of control tokens. */
  tokenText(id: number): string {
    return DECODER.decode(this.tokenBytes(id, 'spelled'));
  }

  /** The text of several tokens; control tokens leave nothing, or their spelling where asked. */
  decode(ids: readonly number[], controlTokens: 'hidden' | 'spelled' = 'hidden'): string {
    return DECODER.decode(Buffer.concat(ids.map(id => this.tokenBytes(id, controlTokens))));
  }

  isControl(id: number): boolean {
    const kind = this.vocabulary.kinds[id];
    return kind === TOKEN_KINDS.control || kind === TOKEN_KINDS.unknown;
  }

  /** The id of a control or user-defined token by its spelling. */
  idOf(spelling: string): number | undefined {
    return this.#ids.get(spelling);
  }

  /** The most bytes that a token stands for: a text of n bytes takes at least n / longestTokenBytes tokens. */
  get longestTokenBytes(): number {
    this.#longestTokenBytes ??= longestToken(this.vocabulary);
    return this.#longestTokenBytes;
  }

  /** Cuts the text at the tokens that are taken whole and merges what lies between. */
  #encodePieces(text: string, cut: { whole: RegExp | undefined; plain: (piece: string) => string }, into: number[]): void {
    // Half a surrogate pair has no UTF-8; it becomes U+FFFD, as everywhere on the web.
    const wellFormed = text.toWellFormed();
    let start = 0;
    if (cut.whole !== undefined) {
      for (const match of wellFormed.matchAll(cut.whole)) {
        this.#encodePlain(cut.plain(wellFormed.slice(start, match.index)), into);
        into.push(this.#ids.get(match[0])!);
        start = match.index + match[0].length;
      }
    }
    this.#encodePlain(cut.plain(start === 0 ? wellFormed : wellFormed.slice(start)), into);
  }

  #encodePlain(text: string, into: number[]): void {
    if (text !== '') this.#words.encode(text, into);
  }

  #decode(id: number): Uint8Array {
    const { kind, kinds, tokens } = this.vocabulary;
    const token = tokens[id];
    // An embedding may have more rows than there are tokens.
    if (token === undefined) return NO_BYTES;
    if (isWhole(kinds[id]!)) return ENCODER.encode(token);
    if (kind === 'byte-level') return bytesOfToken(token);
    const byte = BYTE_TOKEN.exec(token);
    if (kinds[id] === TOKEN_KINDS.byte && byte !== null) return Uint8Array.of(Number.parseInt(byte[1]!, 16));
    return ENCODER.encode(token.replaceAll(SPACE, ' '));
  }
}

const NO_BYTES = new Uint8Array(0);
const ENCODER = new TextEncoder();
const DECODER = new TextDecoder('utf-8', { ignoreBOM: true });

function isWhole(kind: number): boolean {
  return kind === TOKEN_KINDS.control || kind === TOKEN_KINDS.unknown || kind === TOKEN_KINDS.userDefined;
}

/** Without decoding them all: a character of the byte alphabet is one byte, and no other decodes to more than its UTF-8. */
function longestToken({ kind, kinds, tokens }: Vocabulary): number {
  let longest = 1;
  for (const [id, token] of tokens.entries()) {
    const isDisguised = kind === 'byte-level' && !isWhole(kinds[id]!) && !BEYOND_ALPHABET.test(token);
    longest = Math.max(longest, isDisguised ? token.length : Buffer.byteLength(token));
  }
  return longest;
}

const BEYOND_ALPHABET = /[\u0144-\uffff]/;
