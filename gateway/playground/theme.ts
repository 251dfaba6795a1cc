/** Theme: dark, light, or as the system is set. */

const STORAGE_NAME = 'sluice.playground.theme';

export function followTheme(select: HTMLSelectElement): void {
  const apply = () => {
    document.documentElement.dataset.theme = select.value;
  };
  const kept = localStorage.getItem(STORAGE_NAME) ?? '';
  if (Array.from(select.options, option => option.value).includes(kept)) select.value = kept;
  apply();
  select.addEventListener('change', () => {
    localStorage.setItem(STORAGE_NAME, select.value);
    apply();
  });
}
