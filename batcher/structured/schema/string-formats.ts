/**
 * StringFormats: the formats of strings that are held to, each as a regular expression for a part of what its specification allows that every checker
 * takes; and those that say something for people only.
 */
const DAY_OF_MONTH = '(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))';
const DATE = `[12]\\d{3}-${DAY_OF_MONTH}`;
const CLOCK = '(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?';
const ZONE = '(?:Z|[+-](?:0\\d|1[0-4]):[0-5]\\d)';
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?';
const HOST = `${LABEL}(?:\\.${LABEL}){0,5}`;
const OCTET = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const PATH = '(?:/[A-Za-z0-9._~-]{0,64}){0,8}';
const QUERY = '(?:\\?[A-Za-z0-9._~=&-]{0,128})?(?:#[A-Za-z0-9._~-]{0,64})?';
const TIME_PARTS = 'T(?:\\d{1,4}H(?:\\d{1,4}M)?(?:\\d{1,4}S)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S)';
const DAY_PARTS = '(?:\\d{1,4}Y(?:\\d{1,4}M)?(?:\\d{1,4}D)?|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,4}D)';

/** RFC 3339, 1034, 5321, 2673, 4291, 3986, 4122 and ISO 8601, as JSON Schema names them. */
export const FORMATS: Readonly<Record<string, string>> = {
  date: DATE,
  time: `${CLOCK}${ZONE}`,
  'date-time': `${DATE}T${CLOCK}${ZONE}`,
  duration: `P(?:\\d{1,4}W|${DAY_PARTS}(?:${TIME_PARTS})?|${TIME_PARTS})`,
  email: `[A-Za-z0-9_+-]{1,24}(?:\\.[A-Za-z0-9_+-]{1,24}){0,3}@${LABEL}(?:\\.${LABEL}){1,3}`,
  hostname: HOST,
  ipv4: `${OCTET}(?:\\.${OCTET}){3}`,
  ipv6: '[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){7}',
  uuid: '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}',
  uri: `https?://${HOST}(?::\\d{2,4})?${PATH}${QUERY}`,
  'uri-reference': `(?:https?://${HOST})?${PATH}${QUERY}`,
  'json-pointer': '(?:/[A-Za-z0-9_-]{0,64}){0,8}',
};

/** What programs write beside a type to tell its width or how to show it; as the specification has it, they change nothing about what fits. */
export const NOTES: ReadonlySet<string> = new Set([
  ...['password', 'binary', 'byte', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float', 'double', 'decimal'],
  ...['path', 'file-path', 'directory-path', 'textarea', 'multi-line', 'markdown', 'html', 'color', 'base64url'],
]);
