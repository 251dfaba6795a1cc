/** ContentParts: what the contents of messages may have besides text, in whichever call's words. */
import { z } from 'zod';
import { Text } from './generation-fields.ts';
import { custom } from './refusal.ts';

/** An earlier answer's refusal, which is a text like others. */
export const RefusalPart = z.object({ type: z.literal('refusal'), refusal: Text }).transform(part => part.refusal);

/** Parts of these types are of the contract, but no model here takes them; `none` stands where one would. */
export function otherPart<const Types extends readonly [string, ...string[]], None>(types: Types, none: None, why = 'sees or hears') {
  return z
    .looseObject({ type: z.enum(types) })
    .refine(() => false, { message: 'Only text content is supported.', ...custom('unsupported_parameter') })
    .transform(() => none)
    .meta({ deprecated: true, description: `Of the contract, and refused here: no model ${why}.` });
}
