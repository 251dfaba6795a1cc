import { expect, test } from 'vitest';
import { KvMemory } from '../../../batcher/engine/kv-memory.ts';
import { residentIn } from '../../../batcher/engine/resident-memory.ts';

const SMAPS = `10000-30000 rw-p 00000000 00:00 0
Size:                128 kB
Rss:                  12 kB
Pss:                  12 kB
30000-40000 rw-p 00000000 00:00 0
Rss:                   8 kB
40000-50000 r--p 00000000 00:00 0  /usr/lib/some.so
Rss:                   4 kB
`;

test('mappings count whole when a region lies in them, each once', () => {
  const at = (address: number, bytes: number) => ({ address: BigInt(address), bytes });
  expect(residentIn(SMAPS, [at(0x10000, 0x20000)])).toBe(12 * 1024);
  expect(residentIn(SMAPS, [at(0x12000, 0x1000), at(0x14000, 0x1000)])).toBe(12 * 1024);
  expect(residentIn(SMAPS, [at(0x2f000, 0x2000)])).toBe(20 * 1024);
  expect(residentIn(SMAPS, [at(0x60000, 0x1000)])).toBe(0);
});

test.runIf(process.platform === 'linux')(
  'keys and values take pages as they come, and give them back with the last block of a page',
  async () => {
    // Half a page a block and plane.
    const memory = new KvMemory({
      ...{ layers: 2, kvHeads: 3, headDim: 64, elementBytes: 2, rowCount: 2, contextTokens: 4_096, blockTokens: 16, storeBlocks: 512 },
    });
    try {
      const planes = 2 * 2 * 3;
      const idle = (await memory.residentBytes())!;
      const pages = async () => ((await memory.residentBytes())! - idle) / 4_096;
      memory.saveBlocks(0, 0, [8, 9, 10, 11]);
      // Of the row only what was read, which is the page of zeroes.
      expect(await pages()).toBe(2 * planes);
      memory.releaseBlocks([9, 10]);
      expect(await pages()).toBe(2 * planes);
      memory.releaseBlocks([8]);
      expect(await pages()).toBe(planes);
      memory.releaseBlocks([11]);
      expect(await pages()).toBe(0);
      memory.saveBlocks(0, 0, [3]);
      memory.loadBlocks(1, 0, [3]);
      expect(await pages()).toBe(2 * planes);
      memory.releaseRow(1, 0);
      expect(await pages()).toBe(planes);
    } finally {
      memory.close();
    }
  },
);
