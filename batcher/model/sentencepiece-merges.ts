/**
 * SentencePieceMerges: the merges that a SentencePiece BPE vocabulary implies. Its encoder joins the neighbours whose union is the
 * piece with the highest score; written out as ranked pairs, the same encoder serves both kinds of vocabulary.
 */
export interface ScoredPiece {
  text: string;
  score: number;
}

/** All ways to make each piece of two others, the best-scored piece first. */
export function mergesFromScores(pieces: readonly ScoredPiece[]): [string, string][] {
  const ranks = new Map(pieces.map((piece, rank) => [piece.text, rank]));
  const byScore = pieces.toSorted((a, b) => b.score - a.score);
  const merges: [string, string][] = [];
  for (const { text } of byScore) {
    const splits: { left: string; right: string; order: number }[] = [];
    for (let cut = 1; cut < text.length; cut++) {
      // Not between the halves of one character.
      if (isLowSurrogate(text.charCodeAt(cut))) continue;
      const left = text.slice(0, cut);
      const right = text.slice(cut);
      const leftRank = ranks.get(left);
      const rightRank = ranks.get(right);
      if (leftRank !== undefined && rightRank !== undefined) splits.push({ left, right, order: Math.max(leftRank, rightRank) });
    }
    splits.sort((a, b) => a.order - b.order);
    for (const { left, right } of splits) merges.push([left, right]);
  }
  return merges;
}

function isLowSurrogate(code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff;
}
