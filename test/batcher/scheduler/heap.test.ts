import { expect, test } from 'vitest';
import { Heap } from '../../../batcher/scheduler/heap.ts';
import { random } from '../random.ts';

interface Item {
  key: number;
  place: number | undefined;
}

function heap(): Heap<Item> {
  return new Heap<Item>({
    before: (a, b) => a.key < b.key,
    place: item => item.place,
    setPlace: (item, place) => {
      item.place = place;
    },
  });
}

test('random pushes, removals and changes keep the least on top', () => {
  const pick = random(3);
  const items = new Set<Item>();
  const tested = heap();
  for (let i = 0; i < 10_000; i += 1) {
    const some = [...items][pick(Math.max(1, items.size))];
    const kind = pick(5);
    if (kind < 2) {
      const item: Item = { key: pick(100), place: undefined };
      tested.push(item);
      items.add(item);
    } else if (kind === 2 && some !== undefined) {
      some.key = pick(100);
      tested.update(some);
    } else if (kind === 3 && some !== undefined) {
      tested.remove(some);
      tested.remove(some);
      items.delete(some);
    } else {
      const top = tested.pop();
      if (top === undefined) expect(items.size).toBe(0);
      else {
        expect(top.key).toBe(Math.min(...[...items].map(item => item.key)));
        items.delete(top);
      }
    }
    if (items.size > 60) for (const item of items) if (items.delete(item)) tested.remove(item);
    tested.check();
    expect(tested.size).toBe(items.size);
  }
});
