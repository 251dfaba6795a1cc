/** RedisCluster: commands sent singly in the place of a pipeline keep what a pipeline promises: answers in their places, and the order of each key. */
import { describe, expect, it } from 'vitest';
import { singly } from '../../shared/redis-cluster.ts';

type Sent = Record<'set' | 'get' | 'eval' | 'exec', (...words: (string | number)[]) => Sent> & { length: number };

/** A client whose commands are answered in the order of the last word, lowest first, and fail where it is negative. */
function client(begun: string[]) {
  const answer = async (name: string, words: (string | number)[]) => {
    begun.push([name, ...words].join(' '));
    const ms = Number(words.at(-1));
    await new Promise(resolve => setTimeout(resolve, Math.abs(ms)));
    if (ms < 0) throw new Error(`no ${ms}`);
    return ms;
  };
  return Object.fromEntries(['set', 'get', 'eval'].map(name => [name, (...words: (string | number)[]) => answer(name, words)]));
}

describe('commands sent singly', () => {
  it('are each answered in its place, one that fails failing alone', async () => {
    const pipeline = singly(client([])) as Sent;
    pipeline.set('a', 30).get('b', -1).get('c', 1);
    expect(pipeline.length).toBe(3);
    expect(await pipeline.exec()).toEqual([
      [null, 30],
      [new Error('no -1'), undefined],
      [null, 1],
    ]);
  });

  it('of one key are given one after the other, those of others at once; a script goes by its first key', async () => {
    const begun: string[] = [];
    const pipeline = singly(client(begun)) as Sent;
    pipeline.set('a', 20).eval('script', 1, 'a', 1).get('b', 5).eval('script', 2, 'b', 'a', 1);
    const answered = pipeline.exec();
    expect(begun).toEqual(['set a 20', 'get b 5']);
    await answered;
    expect(begun).toEqual(['set a 20', 'get b 5', 'eval script 2 b a 1', 'eval script 1 a 1']);
  });

  it('of one key go on behind one that failed', async () => {
    const begun: string[] = [];
    await (singly(client(begun)) as Sent).set('a', -1).get('a', 0).exec();
    expect(begun).toEqual(['set a -1', 'get a 0']);
  });

  it('none at all are answered with nothing', async () => {
    expect(await (singly(client([])) as Sent).exec()).toEqual([]);
  });
});
