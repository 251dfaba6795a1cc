/** KeyField: the field for the key. It is kept in the browser only while its owner has asked for that. */

const STORAGE_NAME = 'sluice.playground.key';
/** `npm start` prints a link to this page with the key behind the `#`, which browsers send to nobody. */
const LINK = /^#key=([\x21-\x7e]{8,512})$/;
/** Elsewhere a link could slip another's key under a stranger, who would then type into that one's account. */
const OWN_MACHINE = /^(localhost|127\.0\.0\.1|\[::1\])$/;

export interface KeyFieldOptions {
  field: HTMLInputElement;
  remember: HTMLInputElement;
  onChange(key: string): void;
}

export class KeyField {
  readonly #field: HTMLInputElement;
  readonly #remember: HTMLInputElement;

  constructor({ field, remember, onChange }: KeyFieldOptions) {
    this.#field = field;
    this.#remember = remember;
    const kept = localStorage.getItem(STORAGE_NAME);
    remember.checked = kept !== null;
    field.value = keyFromLink() ?? kept ?? '';
    field.addEventListener('change', () => {
      this.#keep();
      onChange(this.key);
    });
    remember.addEventListener('change', () => this.#keep());
  }

  get key(): string {
    return this.#field.value.trim();
  }

  focus(): void {
    this.#field.focus();
  }

  #keep(): void {
    if (this.#remember.checked && this.key !== '') localStorage.setItem(STORAGE_NAME, this.key);
    else localStorage.removeItem(STORAGE_NAME);
  }
}

/** Takes it out of the address, where it would stay in the history and be seen over a shoulder. */
function keyFromLink(): string | undefined {
  if (!OWN_MACHINE.test(location.hostname)) return undefined;
  const key = LINK.exec(location.hash)?.[1];
  if (key !== undefined) history.replaceState(null, '', location.pathname);
  return key;
}
