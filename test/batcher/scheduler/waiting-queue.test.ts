import { describe, expect, test } from 'vitest';
import { type SchedulerSettings, schedulerSettings } from '../../../batcher/scheduler/scheduler-settings.ts';
import { Sequence } from '../../../batcher/scheduler/sequence.ts';
import { WaitingQueue } from '../../../batcher/scheduler/waiting-queue.ts';
import type { ServiceClass } from '../../../shared/job.ts';
import { random } from '../random.ts';

let serial = 0;

interface Wish {
  tenant?: string;
  serviceClass?: ServiceClass;
  weight?: number;
  tokens?: number;
  arrivedAt?: number;
  deadlineAt?: number;
}

function make(wish: Wish = {}): Sequence {
  serial += 1;
  const id = `s${serial}`;
  return new Sequence(
    {
      id,
      tenant: wish.tenant ?? 'a',
      serviceClass: wish.serviceClass ?? 'default',
      weight: wish.weight ?? 1,
      promptTokenIds: new Array<number>(wish.tokens ?? 10).fill(1),
      maxNewTokens: 10,
      arrivedAt: wish.arrivedAt ?? 1e12,
      ttftDeadlineAt: wish.deadlineAt,
      reproducible: false,
      choiceIds: [id],
    },
    { choiceIds: [id], contextTokens: 1_000 },
  );
}

class Line {
  now = 0;
  readonly queue: WaitingQueue;

  constructor(settings: Partial<SchedulerSettings> = {}) {
    this.queue = new WaitingQueue(schedulerSettings({ ageingMs: 1_000, ...settings }));
  }

  push(wish: Wish = {}): Sequence {
    const sequence = make(wish);
    this.queue.push(sequence, this.now);
    this.queue.check();
    return sequence;
  }

  next(cost = 0): Sequence | undefined {
    const head = this.queue.head(this.now);
    expect(this.queue.head(this.now)).toBe(head);
    if (head === undefined) return undefined;
    head.admissionOrder ??= ++serial;
    this.queue.admit(head);
    this.queue.charge(head, cost);
    this.queue.check();
    return head;
  }
}

describe('order', () => {
  test('class first, then first come within a tenant', () => {
    const line = new Line();
    const flex = line.push({ serviceClass: 'flex' });
    const first = line.push();
    const second = line.push();
    const priority = line.push({ serviceClass: 'priority' });
    expect([line.next(), line.next(), line.next(), line.next(), line.next()]).toEqual([priority, first, second, flex, undefined]);
  });

  test('earliest deadline first, the others after', () => {
    const line = new Line();
    const none = line.push();
    const late = line.push({ deadlineAt: 900 });
    const early = line.push({ deadlineAt: 500, tenant: 'b' });
    const middle = line.push({ deadlineAt: 700 });
    expect([line.next(), line.next(), line.next(), line.next()]).toEqual([early, middle, late, none]);
  });

  test('a deadline that cannot be met any more counts for nothing', () => {
    const line = new Line();
    line.queue.setPrefillRate(1_000);
    const first = line.push();
    const hopeless = line.push({ tokens: 400, deadlineAt: 300 });
    const tight = line.push({ tokens: 400, deadlineAt: 500 });
    const easy = line.push({ tokens: 10, deadlineAt: 800 });
    line.now = 150;
    expect([line.next(), line.next(), line.next(), line.next()]).toEqual([easy, first, hopeless, tight]);
  });

  test('who was preempted goes before new ones of the class, first admitted first', () => {
    const line = new Line();
    const a = line.push();
    const b = line.push();
    line.push();
    line.next();
    line.next();
    for (const sequence of [b, a]) {
      line.queue.leave(sequence);
      line.queue.pushPreempted(sequence, line.now);
      line.queue.check();
    }
    expect([line.next(), line.next()]).toEqual([a, b]);
  });

  test('what is removed is gone, wherever it stood', () => {
    const line = new Line();
    const all = [line.push(), line.push({ deadlineAt: 100 }), line.push(), line.push({ tenant: 'b' })];
    line.queue.remove(all[1]!);
    line.queue.remove(all[0]!);
    line.queue.remove(all[0]!);
    line.queue.check();
    expect(line.queue.size).toBe(2);
    expect(line.queue.waitingTokens).toBe(20);
    expect([line.next(), line.next(), line.next()]).toEqual([all[2], all[3], undefined]);
  });
});

describe('fairness', () => {
  test('two tenants of weights 1 and 3 are served 1 to 3, however they queue', () => {
    const line = new Line();
    const served = { a: 0, b: 0 };
    for (let i = 0; i < 400; i += 1) line.push({ tenant: 'a', weight: 1 });
    for (let i = 0; i < 400; i += 1) line.push({ tenant: 'b', weight: 3 });
    for (let i = 0; i < 400; i += 1) {
      const sequence = line.next(100)!;
      served[sequence.request.tenant as 'a' | 'b'] += 100;
      line.queue.leave(sequence);
    }
    expect(served.b / served.a).toBeCloseTo(3, 1);
  });

  test('a tenant that comes back has saved nothing up', () => {
    const line = new Line();
    for (let i = 0; i < 100; i += 1) line.push({ tenant: 'a' });
    for (let i = 0; i < 50; i += 1) line.queue.leave(line.next(100)!);
    for (let i = 0; i < 50; i += 1) line.push({ tenant: 'b' });
    const order = Array.from({ length: 20 }, () => line.next(100)!.request.tenant);
    expect(order.filter(tenant => tenant === 'b').length).toBe(10);
  });

  test('nor has one whose last request runs for long', () => {
    const line = new Line();
    line.push({ tenant: 'b' });
    line.next(10);
    for (let i = 0; i < 100; i += 1) line.push({ tenant: 'a' });
    for (let i = 0; i < 50; i += 1) line.queue.leave(line.next(100)!);
    for (let i = 0; i < 50; i += 1) line.push({ tenant: 'b' });
    const order = Array.from({ length: 20 }, () => line.next(100)!.request.tenant);
    expect(order.filter(tenant => tenant === 'b').length).toBe(10);
  });

  test('deadlines put a tenant ahead by the bound only', () => {
    const line = new Line({ fairnessBoundTokens: 500 });
    for (let i = 0; i < 50; i += 1) line.push({ tenant: 'hurry', deadlineAt: 1_000_000 + i });
    for (let i = 0; i < 50; i += 1) line.push({ tenant: 'calm' });
    const order = Array.from({ length: 30 }, () => line.next(100)!.request.tenant);
    expect(order.slice(0, 6)).toEqual(new Array(6).fill('hurry'));
    expect(order.filter(tenant => tenant === 'calm').length).toBeGreaterThanOrEqual(11);
  });

  test('tenants that left are forgotten', () => {
    const line = new Line();
    for (let i = 0; i < 5_000; i += 1) {
      line.push({ tenant: `t${i}` });
      line.queue.leave(line.next(20)!);
    }
    expect(line.queue.tenants().length).toBeLessThan(10);
  });

  test.each([1, 2, 3, 4, 5])('the bound holds for all that wait all the while (seed %i)', seed => {
    const pick = random(seed);
    const bound = 300;
    const line = new Line({ fairnessBoundTokens: bound, ageingMs: 200 });
    const tenants = ['a', 'b', 'c', 'd'];
    const weights: Record<string, number> = { a: 1, b: 1, c: 2, d: 4 };
    const waiting = new Map(tenants.map(tenant => [tenant, 0]));
    const running: { sequence: Sequence; left: number }[] = [];
    const rows = 4;
    const most = 120;
    const push = (tenant: string): void => {
      line.push({ tenant, weight: weights[tenant]!, ...(pick(2) === 0 && { deadlineAt: line.now + pick(2_000) }), arrivedAt: line.now });
      waiting.set(tenant, waiting.get(tenant)! + 1);
    };
    for (let step = 0; step < 10_000; step += 1) {
      line.now += pick(20);
      for (const tenant of tenants) while (waiting.get(tenant)! < 1 + pick(6)) push(tenant);
      while (running.length < rows) {
        const sequence = line.next()!;
        const { tenant } = sequence.request;
        waiting.set(tenant, waiting.get(tenant)! - 1);
        for (const each of tenants) while (waiting.get(each)! < 1) push(each);
        running.push({ sequence, left: 1 + pick(most) });
      }
      const at = pick(rows);
      const work = running[at]!;
      const cost = Math.min(work.left, 1 + pick(30));
      work.left -= cost;
      line.queue.charge(work.sequence, cost);
      if (work.left === 0) {
        line.queue.leave(work.sequence);
        running.splice(at, 1);
      }
      const served = line.queue.tenants().map(each => each.servedPerWeight);
      // A bound by deadlines, and what the rows can cost once they are taken; the least weight is 1.
      expect(Math.max(...served) - Math.min(...served)).toBeLessThanOrEqual(bound + rows * most);
    }
  });
});

describe('nobody starves', () => {
  test('a lower class gets its share once it has waited', () => {
    const line = new Line({ agedShare: 4, ageingMs: 100 });
    for (let i = 0; i < 10; i += 1) line.push({ serviceClass: 'flex', arrivedAt: 0 });
    const admitted: string[] = [];
    for (let i = 0; i < 40; i += 1) {
      line.push({ serviceClass: 'priority' });
      line.now += 10;
      admitted.push(line.next()!.request.serviceClass);
    }
    expect(admitted.slice(0, 10)).not.toContain('flex');
    expect(admitted.slice(12).filter(each => each === 'flex').length).toBe(7);
  });

  test('a request without deadline is served in a stream of others of its tenant with one', () => {
    const line = new Line({ ageingMs: 100 });
    const calm = line.push({ arrivedAt: 0 });
    let waited = 0;
    for (; waited < 100; waited += 1) {
      line.push({ deadlineAt: line.now + 50 });
      line.now += 10;
      if (line.next() === calm) break;
    }
    expect(waited).toBeLessThan(15);
  });
});
