/** ResidentMemory: how much of mapped memory takes pages, as Linux tells it of this process. */
import { readFile } from 'node:fs/promises';
import type { Address } from './foreign.ts';

export interface MemoryRegion {
  address: Address;
  bytes: number;
}

const SMAPS = '/proc/self/smaps';
const MAPPING = /^([0-9a-f]+)-([0-9a-f]+) /;
const RESIDENT = /^Rss:\s+(\d+) kB/;

/** Of all mappings that any of the regions lies in: the kernel makes one of those that touch. Undefined where it does not tell. */
export async function residentBytes(regions: readonly MemoryRegion[]): Promise<number | undefined> {
  const text = await readFile(SMAPS, 'latin1').catch(() => undefined);
  return text === undefined ? undefined : residentIn(text, regions);
}

/** Exported for its test. */
export function residentIn(smaps: string, regions: readonly MemoryRegion[]): number {
  let isOurs = false;
  let kilobytes = 0;
  for (const line of smaps.split('\n')) {
    const mapping = MAPPING.exec(line);
    if (mapping !== null) {
      const [from, to] = [BigInt(`0x${mapping[1]}`), BigInt(`0x${mapping[2]}`)];
      isOurs = regions.some(({ address, bytes }) => address < to && from < address + BigInt(bytes));
    } else if (isOurs) kilobytes += Number(RESIDENT.exec(line)?.[1] ?? 0);
  }
  return kilobytes * 1024;
}
