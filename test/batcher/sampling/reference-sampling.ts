/** ReferenceSampling: the narrowings as their definitions say, by sorting the vocabulary in float64; slow and plain, to test the fast ones against. */

export interface ReferenceRequest {
  temperature: number;
  topK?: number | undefined;
  topP?: number | undefined;
  minP?: number | undefined;
  typicalP?: number | undefined;
}

/** Weights this far from the largest count as 0, as in the sampler. */
const WEIGHT_LIMIT = 40;
/** A cumulative mass this near to its target may be rounded to either side. */
const AMBIGUOUS = 3e-6;

/** Probability of each token that may be drawn, or undefined where rounding may decide the set. */
export function referenceProbabilities(logits: Float32Array, request: ReferenceRequest): Map<number, number> | undefined {
  const max = logits.reduce((largest, logit) => Math.max(largest, logit), -Infinity);
  let tokens = Array.from(logits, (logit, id) => ({ id, logit, distance: (max - logit) / request.temperature }))
    .filter(token => token.distance < WEIGHT_LIMIT)
    .sort((a, b) => b.logit - a.logit || a.id - b.id)
    .map(token => ({ ...token, weight: Math.exp(-token.distance) }));
  let isAmbiguous = false;
  const mass = (): number => tokens.reduce((sum, token) => sum + token.weight, 0);
  const keepUntil = (target: number): void => {
    const tolerance = AMBIGUOUS * mass();
    let sum = 0;
    const last = tokens.findIndex(token => {
      sum += token.weight;
      if (Math.abs(sum - target) < tolerance) isAmbiguous = true;
      return sum >= target;
    });
    if (last >= 0) tokens = tokens.slice(0, last + 1);
  };
  if (request.topK !== undefined) tokens = tokens.slice(0, request.topK);
  if (request.topP !== undefined && request.topP < 1) keepUntil(request.topP * mass());
  if (request.minP !== undefined && request.minP > 0) {
    const limit = -Math.log(request.minP);
    if (tokens.some(token => Math.abs(token.distance - limit) < 1e-12)) isAmbiguous = true;
    tokens = tokens.filter(token => token.distance <= limit);
  }
  if (request.typicalP !== undefined && request.typicalP < 1) {
    const total = mass();
    const mean = tokens.reduce((sum, token) => sum + token.weight * token.distance, 0) / total;
    const score = (token: { distance: number }): number => Math.abs(token.distance - mean);
    tokens.sort((a, b) => score(a) - score(b) || a.id - b.id);
    keepUntil(request.typicalP * total);
    // Tokens on the two sides of the mean may be equally far from it but for rounding.
    if (tokens.length < logits.length) {
      const worst = Math.max(...tokens.slice(-1).map(score));
      const others = Array.from(logits, (logit, id) => ({ id, distance: (max - logit) / request.temperature }));
      const kept = new Set(tokens.map(token => token.id));
      if (others.some(token => !kept.has(token.id) && Math.abs(score(token) - worst) < 1e-5)) isAmbiguous = true;
    }
  }
  if (isAmbiguous) return undefined;
  const total = mass();
  return new Map(tokens.sort((a, b) => a.id - b.id).map(token => [token.id, token.weight / total]));
}
