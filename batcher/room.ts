/** Room: lets the intake wait until another job may be taken, and wakes it when one has left. */

export class Room {
  readonly #hasRoom: () => boolean;
  #waiting: (() => void)[] = [];

  constructor(hasRoom: () => boolean) {
    this.#hasRoom = hasRoom;
  }

  /** Resolves when there is room; at once if there is. */
  async wait(): Promise<void> {
    while (!this.#hasRoom()) await new Promise<void>(resolve => this.#waiting.push(resolve));
  }

  /** Something has changed: who waits looks again. */
  changed(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
