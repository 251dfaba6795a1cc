/** WakeUp: lets a loop sleep until there may be something to do. A call before it sleeps is not lost: it does not sleep then. */
export class WakeUp {
  #resolve: (() => void) | undefined;
  #isCalled = false;

  call(): void {
    this.#isCalled = true;
    this.#resolve?.();
  }

  /** Until the next call, or at once where there was one since the last sleep. */
  async sleep(): Promise<void> {
    if (!this.#isCalled) await new Promise<void>(resolve => (this.#resolve = resolve));
    this.#isCalled = false;
    this.#resolve = undefined;
  }
}
