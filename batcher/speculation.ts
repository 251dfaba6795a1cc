/**
 * Speculation: offers drafts for sequences that decode in a small batch, by looking up what followed in their own past, where that is
 * measured to pay on this host; and learns from what became of them. A sequence's past is kept only while it is decoded.
 */
import { PromptLookup } from './sampling/prompt-lookup.ts';
import { DraftRecord, SpeculationGate, type SpeculationGateSettings } from './sampling/speculation-gate.ts';

export interface SpeculationSettings extends SpeculationGateSettings {
  /** Decoding sequences beside which no drafts are offered any more. */
  maxRows: number;
}

/** What is known of a sequence when it is first offered drafts for. */
export interface DraftableSequence {
  id: string;
  /** Prompt and answer so far. */
  tokenIds(): readonly number[];
}

interface Past {
  lookup: PromptLookup;
  record: DraftRecord;
}

export class Speculation {
  readonly #settings: SpeculationSettings;
  readonly #gate: SpeculationGate;
  readonly #pasts = new Map<string, Past>();

  constructor(settings: SpeculationSettings) {
    this.#settings = settings;
    this.#gate = new SpeculationGate(settings);
  }

  /** Drafts for the next step, where without them the sequence would be one of `rowCount` rows of the decode batch; none where they do not pay. */
  draftsFor(sequence: DraftableSequence, rowCount: number): number[] {
    if (rowCount > this.#settings.maxRows) return [];
    const past = this.#pastOf(sequence);
    return past.lookup.propose(this.#gate.draftCount(past.record, rowCount));
  }

  /** A decode batch was run. */
  decoded(rowCount: number, ms: number): void {
    this.#gate.observeDecode(rowCount, ms);
  }

  /** A token was sampled without drafts. */
  sampled(sequenceId: string, tokenId: number): void {
    const past = this.#pasts.get(sequenceId);
    past?.lookup.append(tokenId);
    past?.record.observePlain(1);
  }

  /** Drafts were verified, which took `ms`: what was sampled is the accepted ones and one more. */
  verified(sequenceId: string, outcome: { draftCount: number; tokenIds: readonly number[]; ms: number }): void {
    this.#gate.observeVerify(outcome.draftCount + 1, outcome.ms);
    const past = this.#pasts.get(sequenceId);
    if (past === undefined) return;
    for (const tokenId of outcome.tokenIds) past.lookup.append(tokenId);
    past.record.observe(outcome.draftCount, Math.max(0, outcome.tokenIds.length - 1));
  }

  ended(sequenceId: string): void {
    this.#pasts.delete(sequenceId);
  }

  #pastOf({ id, tokenIds }: DraftableSequence): Past {
    let past = this.#pasts.get(id);
    if (past === undefined) {
      past = { lookup: new PromptLookup(tokenIds()), record: new DraftRecord() };
      this.#pasts.set(id, past);
    }
    return past;
  }
}
