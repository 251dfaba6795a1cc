/** Passages: prompts of a wanted length out of the fixed text; no two begin alike, so that none finds another's prefix in a cache. */
import { readFile } from 'node:fs/promises';

const TEXT = new URL('./text/alice-chapter-1.txt', import.meta.url);

export async function readText(): Promise<string> {
  return readFile(TEXT, 'utf8');
}

/** `wordCount` words from a place that depends on `index`, behind a number that no other index has. */
export function passage(text: string, index: number, wordCount: number): string {
  const words = text.split(/\s+/).filter(word => word !== '');
  // A prime stride spreads the starts over the text.
  const start = (index * 977) % words.length;
  const taken = Array.from({ length: wordCount }, (_, i) => words[(start + i) % words.length]);
  return `${index + 1}. Go on with this story. ${taken.join(' ')}`;
}
