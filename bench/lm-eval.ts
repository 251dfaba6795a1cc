/**
 * Bench `lm-eval`: EleutherAI's lm-eval runs a small task through the whole path (`/v1/completions` with `echo` and `logprobs`), and the same task
 * on llama.cpp's own server with the same file; the scores side by side, and how far the log-probabilities lie apart.
 */
import { loadVocabulary } from '../batcher/model/prepare.ts';
import { bench } from './bench.ts';
import { commonSettings } from './common-settings.ts';
import { benchModel } from './model.ts';
import { installLlamaCpp } from './peers/llama-cpp.ts';
import { startLlamaServer } from './peers/llama-server.ts';
import { installLmEval, type LmEvalScore } from './peers/lm-eval.ts';
import { openScoring } from './peers/scoring-llama-server.ts';
import { percentile } from './spread.ts';
import { startStack } from './stack.ts';
import { inTemporaryFolder } from './temporary-folder.ts';
import { writeTokenizerFolder } from './tokenizer-folder.ts';

const CLIENTS = 8;
/** Of a slot of the peer; the longest prompt has a few dozen tokens. */
const SLOT_TOKENS = 512;

export const lmEvalBench = bench({
  settings: { model: commonSettings.model, threads: commonSettings.threads },
  async run({ settings, progress, children }) {
    const model = await benchModel(settings, progress);
    const lmEval = await installLmEval({ progress, children });
    const llamaCpp = await installLlamaCpp({ progress, children }, 'llama-server');
    return inTemporaryFolder(async tokenizerFolder => {
      const { contextTokens } = model.manifest.shape;
      await writeTokenizerFolder(await loadVocabulary(model.directory), { folder: tokenizerFolder, contextTokens });
      const { threads } = settings;
      let ours: LmEvalScore;
      {
        await using stack = await startStack({ model, threads, progress, children });
        progress('lm-eval through the whole path');
        ours = await lmEval.score({ ...stack.target, model: model.name, tokenizerFolder, clients: CLIENTS });
      }
      await using server = await startLlamaServer(
        llamaCpp,
        { modelPath: model.ggufPath, threads, slots: 1, contextTokens: SLOT_TOKENS },
        { children },
      );
      await using scoring = await openScoring(server);
      progress("lm-eval on llama.cpp's server, token by token");
      const theirs = await lmEval.score({ baseUrl: scoring.baseUrl, apiKey: 'none', model: model.name, tokenizerFolder, clients: 1 });
      const differences = differencesOf(ours, theirs);
      const row = (name: string, { accuracy, normalizedAccuracy, standardError }: LmEvalScore) => [
        name,
        accuracy.toFixed(4),
        normalizedAccuracy.toFixed(4),
        standardError.toFixed(4),
      ];
      return {
        title: `lm-eval's scores of ${ours.items.length} questions with four choices each, on ${model.name}`,
        versions: { ...model.versions, 'lm-eval': lmEval.version, 'llama.cpp': llamaCpp.version },
        tables: [
          {
            title: 'Score',
            columns: ['', 'acc', 'acc_norm', 'standard error of acc'],
            rows: [row('through the whole path', ours), row("llama.cpp's server", theirs)],
          },
          {
            title: 'Difference of the log-probability of a choice',
            columns: ['choices', 'median', 'largest', 'questions answered otherwise'],
            rows: [
              [
                String(differences.each.length),
                percentile(differences.each, 50).toFixed(4),
                Math.max(...differences.each).toFixed(4),
                String(differences.answers),
              ],
            ],
          },
        ],
        figures: { unit: 'share of questions, nats', ours: summary(ours), theirs: summary(theirs), differences },
        bars: [
          {
            name: 'difference of the scores, in standard errors',
            value: Math.abs(ours.accuracy - theirs.accuracy) / theirs.standardError,
            relation: '<=',
            limit: 1,
          },
        ],
        notes: [
          "llama.cpp's server refuses `echo`, so each token of a prompt is had from it as the only one that it may choose (bench/peers/scoring-llama-server.ts)",
        ],
      };
    });
  },
});

function summary({ accuracy, normalizedAccuracy, standardError }: LmEvalScore) {
  return { accuracy, normalizedAccuracy, standardError };
}

/** Of each choice's log-probability, and of the choice that is the most likely. Throws where the two are not of the same questions. */
export function differencesOf(ours: Pick<LmEvalScore, 'items'>, theirs: Pick<LmEvalScore, 'items'>): { each: number[]; answers: number } {
  const byQuestion = new Map(theirs.items.map(item => [item.question, item.logprobs]));
  let answers = 0;
  const each = ours.items.flatMap(({ question, logprobs }) => {
    const others = byQuestion.get(question);
    if (others?.length !== logprobs.length) throw new Error(`the other side has no answer to "${question}"`);
    if (likeliest(logprobs) !== likeliest(others)) answers++;
    return logprobs.map((logprob, index) => Math.abs(logprob - others[index]!));
  });
  return { each, answers };
}

function likeliest(logprobs: readonly number[]): number {
  return logprobs.indexOf(Math.max(...logprobs));
}
