/** SameText: whether two secrets are one, in a time that does not tell how far they agree. */

/** Looks at every character of `given`, whatever it finds. Only the length of `given`, which its sender knows, shows in the time. */
export function isSameText(given: string, expected: string): boolean {
  let difference = given.length ^ expected.length;
  for (let i = 0; i < given.length; i++) difference |= given.charCodeAt(i) ^ expected.charCodeAt(i % expected.length);
  return difference === 0;
}
