/**
 * BrokerLinks: the connections of one broker to Redis: one for commands, one for each shard's stream that it follows. Its own shard's is kept
 * for good; another's, whose client came here, while it has open jobs here.
 */
import { outKey } from '../shared/keys.ts';
import type { TokenEvent } from '../shared/token-event.ts';
import type { Settings } from './env.ts';
import { type LinkState, RedisLink } from './redis.ts';
import { StreamTail } from './stream-tail.ts';

export interface BrokerLinksOptions {
  settings: Pick<Settings, 'redisUrl' | 'redisTimeoutMs'>;
  shard: string;
  onEvents(events: readonly TokenEvent[]): void;
  /** Events of that shard may have been missed. */
  onInterrupted(shard: string): void;
  onChange(connection: string, state: LinkState, cause: string | undefined): void;
  onTrouble(message: string): void;
}

export class BrokerLinks {
  readonly commands: RedisLink;
  readonly #options: BrokerLinksOptions;
  readonly #tails = new Map<string, StreamTail>();

  constructor(options: BrokerLinksOptions) {
    this.#options = options;
    this.commands = this.#connect('commands');
  }

  /** Resolves when every event of the shard's jobs that is written from now on will be heard. */
  follow(shard: string): Promise<void> {
    let tail = this.#tails.get(shard);
    if (tail === undefined) {
      tail = new StreamTail({
        link: this.#connect('tail'),
        commands: this.commands,
        key: outKey(shard),
        onEvents: this.#options.onEvents,
        onInterrupted: () => this.#options.onInterrupted(shard),
        onTrouble: this.#options.onTrouble,
      });
      this.#tails.set(shard, tail);
    }
    return tail.start();
  }

  /** Other shards but these are of no more interest. */
  keepOnly(wanted: () => ReadonlySet<string>): void {
    if (this.#tails.size <= 1) return;
    const shards = wanted();
    for (const [shard, tail] of this.#tails) {
      if (shard === this.#options.shard || shards.has(shard)) continue;
      tail.stop();
      this.#tails.delete(shard);
    }
  }

  #connect(purpose: string): RedisLink {
    const { settings, onChange } = this.#options;
    return new RedisLink({
      url: settings.redisUrl,
      name: `sluice-broker-${purpose}`,
      timeoutMs: settings.redisTimeoutMs,
      onChange: (state, cause) => onChange(purpose, state, cause),
    });
  }
}
