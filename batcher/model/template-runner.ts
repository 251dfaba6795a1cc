/**
 * TemplateRunner: one Jinja chat template, run with bounds: on time, on characters that it writes and on elements of its lists; past
 * that it ends in an error, whatever the messages or the template are.
 */
import { createContext, Script } from 'node:vm';
import { Environment, Interpreter, parse, tokenize } from '@huggingface/jinja';
import { ModelError, reasonOf } from './model-error.ts';

export type TemplateValues = Readonly<Record<string, unknown>>;

/** A hundred times what a long conversation takes; only V8 itself can stop a loop that calls nothing of ours. */
const MAX_MS = 2_000;
const MAX_ELEMENTS = 100_000;
/** Each environment of the library has it, and cannot be given it again. */
const LIBRARY_GLOBAL = 'namespace';

/** The template itself refused (raise_exception), or could not deal with the values. */
export class TemplateRefusal extends Error {}

export class TemplateRunner {
  readonly source: string;
  readonly #program: ReturnType<typeof parse>;

  /** Throws a ModelError when the source is no template. */
  constructor(source: string, name: string) {
    this.source = source;
    try {
      this.#program = parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true }));
    } catch (thrown) {
      throw new ModelError(`the chat template ${JSON.stringify(name)} of the model cannot be read (${reasonOf(thrown)}).`, {
        cause: thrown,
      });
    }
  }

  /** Throws a TemplateRefusal. */
  render(values: TemplateValues, maxCharacters: number): string {
    const environment = new Environment();
    // Some of the values are a client's, by names of its own.
    for (const [name, value] of Object.entries({ ...values, ...GLOBALS })) if (name !== LIBRARY_GLOBAL) environment.set(name, value);
    const interpreter = new BoundedInterpreter(environment, maxCharacters);
    try {
      return withinTime(() => String(interpreter.run(this.#program).value));
    } catch (thrown) {
      throw thrown instanceof TemplateRefusal ? thrown : new TemplateRefusal(reasonOf(thrown), { cause: thrown });
    }
  }
}

/** The library's declarations do not resolve under Node's module rules; this much of them is used here. */
interface JinjaInterpreter {
  run(program: unknown): { value: unknown };
  evaluate(statement: unknown, environment: unknown): { value: unknown };
}
const BaseInterpreter = Interpreter as unknown as new (environment: unknown) => JinjaInterpreter;

class BoundedInterpreter extends BaseInterpreter {
  readonly #maxCharacters: number;

  constructor(environment: unknown, maxCharacters: number) {
    super(environment);
    this.#maxCharacters = maxCharacters;
  }

  override evaluate(statement: unknown, environment: unknown): { value: unknown } {
    const result = super.evaluate(statement, environment);
    const { value } = result;
    if (typeof value === 'string' && value.length > this.#maxCharacters) {
      throw new TemplateRefusal(`it writes more than ${this.#maxCharacters} characters`);
    }
    if (Array.isArray(value) && value.length > MAX_ELEMENTS)
      throw new TemplateRefusal(`it makes a list of more than ${MAX_ELEMENTS} elements`);
    return result;
  }
}

/** What runs longer is terminated where it stands, loops without calls included. */
function withinTime(run: () => string): string {
  timed.run = run;
  try {
    return RUN.runInContext(timed, { timeout: MAX_MS }) as string;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw thrown;
    throw new TemplateRefusal(`it takes longer than ${MAX_MS} ms`, { cause: thrown });
  } finally {
    timed.run = undefined;
  }
}

const RUN = new Script('run()');
const timed: { run: (() => string) | undefined } = { run: undefined };
createContext(timed);

/** What templates of the Hugging Face hub may call, as transformers gives it to them. */
const GLOBALS: TemplateValues = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  raise_exception: (message: unknown) => {
    throw new TemplateRefusal(String(message));
  },
  range: boundedRange,
  strftime_now: (format: unknown) => formatDate(new Date(), String(format)),
};

function boundedRange(first: number, second?: number, step = 1): number[] {
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const length = step === 0 ? Number.POSITIVE_INFINITY : Math.max(0, Math.ceil((stop - start) / step));
  if (!(length <= MAX_ELEMENTS)) throw new TemplateRefusal(`it makes a list of more than ${MAX_ELEMENTS} elements`);
  return Array.from({ length }, (_, i) => start + i * step);
}

/** The directives of strftime that templates use, in English and UTC: a prompt must not depend on where a batcher stands. */
function formatDate(date: Date, format: string): string {
  const english = (options: Intl.DateTimeFormatOptions): string =>
    new Intl.DateTimeFormat('en-US', { ...options, timeZone: 'UTC' }).format(date);
  const two = (value: number): string => String(value).padStart(2, '0');
  return format.replace(/%([A-Za-z%])/g, (whole, directive: string) => {
    switch (directive) {
      case 'Y':
        return String(date.getUTCFullYear());
      case 'y':
        return two(date.getUTCFullYear() % 100);
      case 'm':
        return two(date.getUTCMonth() + 1);
      case 'd':
        return two(date.getUTCDate());
      case 'H':
        return two(date.getUTCHours());
      case 'I':
        return two(date.getUTCHours() % 12 || 12);
      case 'M':
        return two(date.getUTCMinutes());
      case 'S':
        return two(date.getUTCSeconds());
      case 'p':
        return date.getUTCHours() < 12 ? 'AM' : 'PM';
      case 'B':
        return english({ month: 'long' });
      case 'b':
        return english({ month: 'short' });
      case 'A':
        return english({ weekday: 'long' });
      case 'a':
        return english({ weekday: 'short' });
      case '%':
        return '%';
      default:
        return whole;
    }
  });
}
