import { describe, expect, it } from 'vitest';
import type { Dispatch, Recipient, Standing } from '../../batcher/outbox.ts';
import { Publisher, type Speaker } from '../../batcher/publisher.ts';
import type { TokenEvent } from '../../shared/token-event.ts';

class Talker implements Speaker {
  readonly recipient: Recipient;
  readonly isOver = false;
  events: TokenEvent[] = [];

  constructor(jobId: string) {
    this.recipient = { jobId, attempt: 1, shard: '0' };
  }

  says(seq: number): void {
    const { jobId: id } = this.recipient;
    this.events.push({ id, attempt: 1, seq, type: 'delta', choice: 0, tokenIds: [seq], text: 'x' });
  }

  takeEvents(): TokenEvent[] {
    return this.events.splice(0);
  }
}

function rig(standingOf: (jobId: string) => Standing = () => 'ok') {
  const sent: { id: string; count: number }[][] = [];
  const standings: string[] = [];
  const publisher = new Publisher<Talker>({
    outbox: {
      async send(dispatches: readonly Dispatch[]) {
        sent.push(dispatches.map(({ recipient, events }) => ({ id: recipient.jobId, count: events.length })));
        return dispatches.map(({ recipient }) => standingOf(recipient.jobId));
      },
    },
    onStanding: ({ recipient }, standing) => standings.push(`${recipient.jobId} ${standing}`),
    onSettled: () => undefined,
    onError(error) {
      throw error;
    },
  });
  const publish = async () => {
    publisher.publish();
    await publisher.idle();
  };
  return { publisher, publish, sent, standings };
}

describe('Publisher', () => {
  it('asks of a silent job at once and then now and then, and sends what another tells with every call', async () => {
    const { publisher, publish, sent } = rig();
    const [silent, talker] = [new Talker('silent'), new Talker('talker')];
    publisher.add(silent);
    publisher.add(talker);
    for (let step = 0; step < 50; step++) {
      talker.says(step);
      await publish();
    }
    expect(sent[0]).toEqual([
      { id: 'silent', count: 0 },
      { id: 'talker', count: 1 },
    ]);
    expect(sent).toHaveLength(50);
    expect(sent.every(batch => batch.some(({ id, count }) => id === 'talker' && count === 1))).toBe(true);
    expect(sent.filter(batch => batch.some(({ id }) => id === 'silent')).length).toBeLessThan(50);
  });

  it('hears that a silent job was cancelled', async () => {
    let isCancelled = false;
    const { publisher, publish, standings } = rig(() => (isCancelled ? 'cancelled' : 'ok'));
    publisher.add(new Talker('silent'));
    await publish();
    isCancelled = true;
    while (standings.length === 0) {
      await new Promise(resolve => setTimeout(resolve, 10));
      await publish();
    }
    expect(standings).toEqual(['silent cancelled']);
  });
});
