/** BlockHits: how many prompt tokens a prefix cache without bounds would have had, in whole KV blocks, of prompts in the order in which they come. */

/** Tokens found for each prompt. */
export function idealBlockHits(prompts: readonly (readonly number[])[], blockTokens: number): number[] {
  /** A block is known by its tokens and the block before it. */
  const known = new Map<string, number>();
  return prompts.map(tokenIds => {
    let parent = -1;
    let hitBlocks = 0;
    for (let block = 0; (block + 1) * blockTokens <= tokenIds.length; block++) {
      const key = `${parent}:${tokenIds.slice(block * blockTokens, (block + 1) * blockTokens).join()}`;
      const found = known.get(key);
      if (found === undefined) known.set(key, known.size);
      else if (hitBlocks === block) hitBlocks++;
      parent = found ?? known.size - 1;
    }
    return hitBlocks * blockTokens;
  });
}
