/** CardBoard: which batchers there are, at most half a second old; it answers for a model's name and for where a model is served. */
import { type BatcherCard, CARD_CLOCK, isFresh, parseCard, tasksOf } from '../shared/batcher-card.ts';
import { ApiError } from '../shared/errors.ts';
import type { TaskKind } from '../shared/job.ts';
import { BATCHER_CARDS, CARD_COPY_MS } from '../shared/keys.ts';
import type { RedisLink } from './redis.ts';

/** What requests of one model have to fit. */
export interface ServedModel {
  name: string;
  /** The smallest among its batchers: any of them may take the job. */
  contextTokens: number;
  /** Epoch milliseconds: since when it has been served without a break, as far as is known. */
  servedSince: number;
  /** Kinds of task that one of its batchers does at least. */
  tasks: readonly string[];
  /** Numbers of its embeddings. */
  dimensions?: number | undefined;
}

/** A batcher that has been silent this long will not come back under the same id. */
const FORGET_MS = 60 * 60_000;
/** A batcher takes about this long to start. */
const RETRY_AFTER_SECONDS = 5;
const DEFAULT_ALIAS = 'default';

export class CardBoard {
  readonly #link: RedisLink;
  #cards: readonly BatcherCard[] = [];
  #readAt = 0;
  #reading: Promise<void> | undefined;

  constructor(link: RedisLink) {
    this.#link = link;
  }

  /** Every card there is, stale ones too, as they were at most so long ago. Throws `dependency_unavailable`. */
  async cards(maxAgeMs = CARD_COPY_MS): Promise<readonly BatcherCard[]> {
    if (Date.now() - this.#readAt > maxAgeMs) {
      this.#reading ??= this.#read().finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
    }
    return this.#cards;
  }

  async #read(): Promise<void> {
    const [entries, time] = await Promise.all([
      this.#link.run(client => client.hgetall(BATCHER_CARDS)),
      this.#link.run(async client => (await client.eval(CARD_CLOCK, 1, BATCHER_CARDS)) as [string, string]),
    ]);
    const now = Date.now();
    // Cards are dated by a clock of Redis, and compared with ours by all who get them from here.
    const ahead = now - (Number(time[0]) * 1_000 + Number(time[1]) / 1_000);
    const forgotten: string[] = [];
    const cards: BatcherCard[] = [];
    for (const [id, json] of Object.entries(entries)) {
      const card = parseCard(json);
      if (card === undefined) continue;
      card.writtenAt += ahead;
      if (now - card.writtenAt > FORGET_MS) forgotten.push(id);
      else cards.push(card);
    }
    this.#cards = cards;
    this.#readAt = now;
    if (forgotten.length > 0) await this.#link.run(client => client.hdel(BATCHER_CARDS, ...forgotten));
  }
}

/** Models that take new requests now, by name. */
export function servedModels(cards: readonly BatcherCard[], now: number): ServedModel[] {
  const models = new Map<string, ServedModel>();
  for (const card of cards) {
    if (card.state !== 'serving' || !isFresh(card, now)) continue;
    const known = models.get(card.model);
    const dimensions = card.dimensions ?? known?.dimensions;
    models.set(card.model, {
      name: card.model,
      contextTokens: Math.min(card.contextTokens, known?.contextTokens ?? Number.POSITIVE_INFINITY),
      servedSince: Math.min(card.startedAt, known?.servedSince ?? Number.POSITIVE_INFINITY),
      tasks: [...new Set([...(known?.tasks ?? []), ...tasksOf(card)])],
      ...(dimensions !== undefined && { dimensions }),
    });
  }
  return [...models.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

interface Naming {
  task: TaskKind;
  /** What `default` means, where the settings say. */
  defaultModel: string | undefined;
  now: number;
}

/** The name of the model that a client means, whether it is served now or not; undefined while `default` means nothing. */
export function modelMeant(cards: readonly BatcherCard[], asked: string, { task, defaultModel, now }: Naming): string | undefined {
  return asked === DEFAULT_ALIAS ? defaultName(servedModels(cards, now), task, defaultModel) : asked;
}

/**
 * The model that a client means for a task. Throws `model_not_found` for a name that no batcher has, `invalid_value` for a model that does
 * other things, `no_batcher` for a model that is known and not served now, or while nothing is served at all.
 */
export function findModel(cards: readonly BatcherCard[], asked: string, options: Naming): ServedModel {
  const { task, defaultModel, now } = options;
  const models = servedModels(cards, now);
  const name = modelMeant(cards, asked, options);
  const model = models.find(served => served.name === name);
  if (model?.tasks.includes(task)) return model;
  if (model !== undefined) {
    throw new ApiError('invalid_value', `The model '${model.name}' does not ${VERBS[task]}.`, { param: 'model' });
  }
  const isKnown = name === undefined ? isDone(cards, task) : name === defaultModel || cards.some(card => card.model === name);
  if (isKnown || models.length === 0) {
    throw new ApiError('no_batcher', `No batcher serves the model '${(name ?? asked).slice(0, 128)}' at the moment. Try again shortly.`, {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }
  const message = name === undefined ? `There is no model here to ${VERBS[task]}.` : `The model '${asked.slice(0, 128)}' does not exist.`;
  throw new ApiError('model_not_found', message, { param: 'model' });
}

/** Behind "does not". */
const VERBS: Readonly<Record<TaskKind, string>> = {
  generate: 'generate text',
  embed: 'make embeddings',
  tokenize: 'tokenize',
  detokenize: 'detokenize',
};

/** What `default` stands for; undefined where no model that is served does this. The one that the setting names, unless it does other things. */
export function defaultName(models: readonly ServedModel[], task: TaskKind, defaultModel: string | undefined): string | undefined {
  const named = models.find(model => model.name === defaultModel);
  if (defaultModel !== undefined && (named === undefined || named.tasks.includes(task))) return defaultModel;
  // Before those that would do it too: who says no name means the model that he talks to.
  const able = models.filter(model => model.tasks.includes(task));
  return (able.find(model => model.tasks.includes('generate')) ?? able[0])?.name;
}

/** Also by batchers that are not there now. Every installation has a model that generates. */
function isDone(cards: readonly BatcherCard[], task: TaskKind): boolean {
  return task === 'generate' || cards.some(card => tasksOf(card).includes(task));
}
