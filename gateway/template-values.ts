/** TemplateValues: what a body gives to the model's chat template besides the conversation (`chat_template_kwargs`), such as `enable_thinking`. */
import { z } from 'zod';

const MAX_VALUES = 32;
const MAX_TEXT_CHARACTERS = 1_024;
/** Made here, from other fields. */
const OWN_NAMES = new Set(['messages', 'tools', 'add_generation_prompt', 'continue_final_message', 'bos_token', 'eos_token', 'documents']);

const NAME = /^[A-Za-z][A-Za-z0-9_]{0,63}$/;
const Value = z.union(
  [
    z.boolean(),
    z.number(),
    z.null(),
    z
      .string()
      .max(MAX_TEXT_CHARACTERS)
      .transform(text => text.toWellFormed()),
  ],
  { error: `expected true, false, a number, null or a text of at most ${MAX_TEXT_CHARACTERS} characters` },
);

export const ChatTemplateKwargs = z
  .record(z.string(), Value)
  .superRefine((values, context) => {
    const names = Object.keys(values);
    if (names.length > MAX_VALUES) {
      context.addIssue({ code: 'custom', input: values, message: `There may be at most ${MAX_VALUES} values for the template.` });
    }
    if (!names.every(name => NAME.test(name))) {
      context.addIssue({ code: 'custom', input: values, message: 'A name has 1 to 64 letters, digits and _, a letter first.' });
    }
    for (const name of names.filter(each => OWN_NAMES.has(each))) {
      context.addIssue({ code: 'custom', input: values, path: [name], message: `'${name}' is made of the request's other fields.` });
    }
  })
  .nullish()
  .describe('Values for the model\'s chat template, as in `{"enable_thinking": false}`; what it does not use has no effect.');
